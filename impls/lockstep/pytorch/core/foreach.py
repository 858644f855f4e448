"""Lists of tensors in few launches: all that Lockstep uses of ``torch._foreach_*``.

These names begin with an underscore (torch 2.13 has no public ones), so they stay here.
A list may mix devices and dtypes: it is cut into parts that one launch can take.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

__all__ = [
    "add",
    "clamp",
    "copy",
    "divide",
    "end_to_end",
    "norms",
    "scale",
    "scale_each",
    "scale_each_in_place",
    "scale_in_place",
    "subtract",
    "zero",
]


def add(targets: Sequence[Tensor], terms: Sequence[Tensor]) -> None:
    """Add a tensor to each of others of their shapes and dtypes, in place."""
    if targets:
        torch._foreach_add_(targets, terms)


def clamp(tensors: Sequence[Tensor], largest: float) -> list[Tensor]:
    """Return tensors with magnitudes of at most ``largest``; NaN stays NaN."""
    clamped = torch._foreach_clamp_max(tensors, largest)
    torch._foreach_clamp_min_(clamped, -largest)
    return list(clamped)


def copy(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors into others of their shapes, cast to their dtypes."""
    if targets:
        torch._foreach_copy_(targets, sources)


def divide(tensors: Sequence[Tensor], divisor: float) -> list[Tensor]:
    """Return each tensor divided by a number, which is cast to its dtype first.

    The number is a tensor: by a plain one a GPU would multiply with its reciprocal.
    """
    return [tensor / number_like(divisor, tensor) for tensor in tensors]


def subtract(tensors: Sequence[Tensor], terms: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors less others of their shapes and dtypes."""
    return list(torch._foreach_sub(tensors, terms)) if tensors else []


def zero(tensors: Sequence[Tensor]) -> None:
    """Fill tensors with zeros."""
    if tensors:
        torch._foreach_zero_(tensors)


def scale(tensors: Sequence[Tensor], factor: Tensor | float) -> list[Tensor]:
    """Return each tensor times a number, which is cast to its dtype first."""
    scaled: dict[int, Tensor] = {}
    for positions in alike(tensors):
        part = [tensors[k] for k in positions]
        products = torch._foreach_mul(part, number_like(factor, part[0]))
        scaled.update(zip(positions, products, strict=True))
    return [scaled[k] for k in range(len(tensors))]


def scale_in_place(tensors: Sequence[Tensor], factor: Tensor | float) -> None:
    """Multiply each tensor by a number, which is cast to its dtype first."""
    for positions in alike(tensors):
        part = [tensors[k] for k in positions]
        torch._foreach_mul_(part, number_like(factor, part[0]))


def scale_each(
    tensors: Sequence[Tensor], factors: Mapping[torch.dtype, Tensor]
) -> list[Tensor]:
    """Return the k-th tensor times the k-th factor of its dtype: [n] factors each."""
    scaled: dict[int, Tensor] = {}
    for positions in alike(tensors):
        part = [tensors[k] for k in positions]
        products = torch._foreach_mul(part, chosen(factors, part[0], positions))
        scaled.update(zip(positions, products, strict=True))
    return [scaled[k] for k in range(len(tensors))]


def scale_each_in_place(
    tensors: Sequence[Tensor], factors: Mapping[torch.dtype, Tensor]
) -> None:
    """Do as :func:`scale_each`, and overwrite the tensors."""
    for positions in alike(tensors):
        part = [tensors[k] for k in positions]
        torch._foreach_mul_(part, chosen(factors, part[0], positions))


def chosen(
    factors: Mapping[torch.dtype, Tensor], like: Tensor, positions: Sequence[int]
) -> list[Tensor]:
    """Return the factors of some positions, where and as ``like`` is: 0-d each."""
    numbers = factors[like.dtype].to(like.device, non_blocking=True).unbind()
    return [numbers[k] for k in positions]


def number_like(number: Tensor | float, tensor: Tensor) -> Tensor:
    """Return a 0-d tensor with the dtype and device of ``tensor``.

    A number is written where it is needed: to copy it there would wait for a GPU.
    """
    if isinstance(number, Tensor):
        return number.to(tensor)
    return torch.full((), number, dtype=tensor.dtype, device=tensor.device)


def norms(
    tensors: Sequence[Tensor], order: float = 2, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """Return each tensor's norm, taken in ``dtype``; of order inf none may be empty."""
    found: dict[int, Tensor] = {}
    for positions in alike(tensors):
        part = [tensors[k] for k in positions]
        values = torch._foreach_norm(part, order, dtype=dtype)
        found.update(zip(positions, values, strict=True))
    return [found[k] for k in range(len(tensors))]


def end_to_end(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the elements of all tensors: a copy [n] for each dtype and device."""
    parts = ([tensors[k] for k in positions] for positions in alike(tensors))
    return [
        torch.cat(part)
        if all(tensor.dim() == 1 for tensor in part)
        else torch._utils._flatten_dense_tensors(part)
        for part in parts
    ]


def alike(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Group the positions of tensors by device and dtype."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = defaultdict(list)
    for position, tensor in enumerate(tensors):
        groups[tensor.device, tensor.dtype].append(position)
    return list(groups.values())
