"""Operations on lists of tensors in a few kernel launches, with ``torch._foreach_*``.

The names of these functions begin with an underscore, because torch 2.13 has no public
ones. So only this module and :mod:`lockstep.pytorch.tensors.fused` use them.
A list may mix devices and dtypes. It is split into parts that one launch can process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from lockstep.pytorch.tensors import shards
from lockstep.pytorch.tensors.devices import moved
from lockstep.pytorch.tensors.rounding import sqrt

__all__ = [
    "CPU_RUN",
    "add",
    "alike",
    "are_finite",
    "clamp",
    "copy",
    "copy_parts",
    "divide",
    "end_to_end",
    "joined",
    "multiply",
    "multiply_in_place",
    "norms",
    "norms_alike",
    "number_like",
    "part_by_part",
    "plus_number",
    "roots",
    "roots_plus",
    "runs",
    "runs_alike",
    "scale",
    "scale_alike",
    "scale_alike_in_place",
    "scale_each",
    "scale_each_in_place",
    "scale_in_place",
    "share_elements",
    "subtract",
    "subtract_in_place",
    "zero",
]

# Made once, because a new tensor takes a microsecond in every step.
ONE = torch.ones((), dtype=torch.float32, device="cpu")

CPU_RUN, RUN = 1 << 16, 1 << 25
"""About how many elements one launch processes, on the CPU and on other devices."""


def add(targets: Sequence[Tensor], terms: Sequence[Tensor]) -> None:
    """Add terms to tensors of the same shapes and dtypes, in place."""
    if targets:
        torch._foreach_add_(targets, terms)


def are_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether all elements of contiguous tensors on the CPU are finite, in one launch.

    torch's ``GradScaler`` uses this kernel, which also multiplies by a number. By 1,
    the elements keep their bits, and the tensors their versions.
    """
    nonfinite = torch.zeros_like(ONE)
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, nonfinite, ONE)
    return not nonfinite


def clamp(tensors: Sequence[Tensor], largest: float) -> list[Tensor]:
    """Return tensors with magnitudes of at most ``largest``; NaN stays NaN."""
    clamped = torch._foreach_clamp_max(tensors, largest)
    torch._foreach_clamp_min_(clamped, -largest)
    return list(clamped)


def copy(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors into others of the same shapes, and cast them to their dtypes."""
    if targets:
        torch._foreach_copy_(targets, sources)


def copy_parts(targets: Sequence[Tensor], flat: Tensor) -> None:
    """Copy the elements of ``flat``, made by :func:`end_to_end`, into the targets."""
    copy(targets, torch._utils._unflatten_dense_tensors(flat, targets))


def divide(tensors: Sequence[Tensor], divisor: float) -> list[Tensor]:
    """Return each tensor divided by a number, which is cast to its dtype first.

    The divisor is passed as a tensor. If it were a plain number, a GPU would multiply
    by its reciprocal.
    """
    return [tensor / number_like(divisor, tensor) for tensor in tensors]


def multiply(tensors: Sequence[Tensor], factors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors times factors of the same dtypes and the same shapes, or 0-d."""
    return list(torch._foreach_mul(tensors, factors)) if tensors else []


def multiply_in_place(targets: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    """Multiply tensors by factors of their dtypes, of the same shapes or 0-d.

    One launch for many cannot write into lazy conjugates, which autograd may return.
    """
    if targets[0].is_complex():
        for target, factor in zip(targets, factors, strict=True):
            target.mul_(factor)
    else:
        torch._foreach_mul_(targets, factors)


def subtract(tensors: Sequence[Tensor], terms: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors minus terms of the same shapes and dtypes."""
    return list(torch._foreach_sub(tensors, terms)) if tensors else []


def subtract_in_place(targets: Sequence[Tensor], terms: Sequence[Tensor]) -> None:
    """Subtract terms of the same shapes and dtypes from tensors."""
    if targets:
        torch._foreach_sub_(targets, terms)


def plus_number(tensors: Sequence[Tensor], number: Tensor | float) -> list[Tensor]:
    """Return each tensor plus a number. The tensors share a device and a dtype."""
    return list(torch._foreach_add(tensors, number_like(number, tensors[0])))


def zero(tensors: Sequence[Tensor]) -> None:
    """Fill tensors with zeros."""
    if tensors:
        torch._foreach_zero_(tensors)


def scale(tensors: Sequence[Tensor], factor: Tensor | float) -> list[Tensor]:
    """Return each tensor times a number, which is cast to its dtype first."""

    return part_by_part(tensors, lambda part: scale_alike(part, factor))


def scale_alike(tensors: Sequence[Tensor], factor: Tensor | float) -> list[Tensor]:
    """Do as :func:`scale`, with tensors that share a device and a dtype."""
    return list(torch._foreach_mul(tensors, number_like(factor, tensors[0])))


def scale_in_place(tensors: Sequence[Tensor], factor: Tensor | float) -> None:
    """Multiply each tensor by a number, which is cast to its dtype first."""
    for positions in alike(tensors):
        scale_alike_in_place([tensors[k] for k in positions], factor)


def scale_alike_in_place(tensors: Sequence[Tensor], factor: Tensor | float) -> None:
    """Do as :func:`scale_in_place`, with tensors that share a device and a dtype."""
    number = number_like(factor, tensors[0])
    if tensors[0].is_complex():
        multiply_in_place(tensors, [number] * len(tensors))
    else:
        torch._foreach_mul_(tensors, number)


def scale_each(
    tensors: Sequence[Tensor], factors: Callable[[torch.dtype], Tensor]
) -> list[Tensor]:
    """Return the k-th tensor times the k-th factor.

    ``factors`` returns all factors in a given dtype: [n].
    """
    scaled: dict[int, Tensor] = {}
    for positions in alike(tensors):
        part = [tensors[k] for k in positions]
        products = torch._foreach_mul(part, chosen(factors, part[0], positions))
        scaled.update(zip(positions, products, strict=True))
    return [scaled[k] for k in range(len(tensors))]


def scale_each_in_place(
    tensors: Sequence[Tensor], factors: Callable[[torch.dtype], Tensor]
) -> None:
    """Do as :func:`scale_each`, but overwrite the tensors."""
    for positions in alike(tensors):
        part = [tensors[k] for k in positions]
        multiply_in_place(part, chosen(factors, part[0], positions))


def chosen(
    factors: Callable[[torch.dtype], Tensor], like: Tensor, positions: Sequence[int]
) -> list[Tensor]:
    """Return the factors at these positions, in the dtype and device of ``like``.

    Each is 0-d.
    """
    there = moved(factors(like.dtype), like.device).unbind()
    return [there[k] for k in positions]


def number_like(number: Tensor | float, tensor: Tensor) -> Tensor:
    """Return a 0-d tensor with the dtype and device of ``tensor``.

    A Python number, or one in a tensor on the CPU, is written on the device itself,
    because copying it to a GPU would wait.
    """
    if isinstance(number, Tensor):
        number = number.to(tensor.dtype)
        if tensor.is_cpu or not number.is_cpu:
            return moved(number, tensor.device)
        number = number.item()
    return torch.full((), number, dtype=tensor.dtype, device=tensor.device)


def norms(
    tensors: Sequence[Tensor], order: float = 2, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """Return each tensor's norm, computed in ``dtype``.

    With an ``order`` of infinity, no tensor may be empty.
    """
    return part_by_part(tensors, lambda part: norms_alike(part, order, dtype))


def norms_alike(
    tensors: Sequence[Tensor], order: float, dtype: torch.dtype
) -> list[Tensor]:
    """Do as :func:`norms`, with tensors that share a device and a dtype."""
    return list(torch._foreach_norm(tensors, order, dtype=dtype)) if tensors else []


def joined(
    tensors: Sequence[Tensor], join: Callable[..., Tensor] = torch.cat
) -> Tensor:
    """Return tensors in one tensor, by ``torch.cat`` or a similar function.

    Under autocast to one half-precision dtype, these functions refuse the other one.
    """
    device = tensors[0].device.type
    if tensors[0].itemsize >= 4 or not torch.is_autocast_enabled(device):
        return join(list(tensors))
    with torch.autocast(device, enabled=False):
        return join(list(tensors))


def end_to_end(tensors: Sequence[Tensor]) -> Tensor:
    """Return all elements of the tensors in one flat tensor: [n].

    The tensors share a device and a dtype. A single tensor is not copied.
    """
    if len(tensors) == 1:
        return tensors[0].reshape(-1)
    if tensors[0].dim() == 1 and all([tensor.dim() == 1 for tensor in tensors]):
        return joined(tensors)
    return joined(tensors, torch._utils._flatten_dense_tensors)


def roots(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the square roots of each tensor, rounded as by ``rounding.sqrt``.

    The tensors share a device and a dtype.
    """
    if not tensors[0].is_cpu:
        return list(torch._foreach_sqrt(tensors))
    if len(tensors) == 1:
        return [sqrt(tensors[0])]
    flat = sqrt(torch._utils._flatten_dense_tensors(tensors))
    return list(torch._utils._unflatten_dense_tensors(flat, tensors))


def roots_plus(tensors: Sequence[Tensor], number: Tensor | float) -> list[Tensor]:
    """Return :func:`roots` plus a number.

    On the CPU the number is added to all of them in one launch.
    """
    if not tensors[0].is_cpu or len(tensors) == 1:
        return plus_number(roots(tensors), number)
    flat = sqrt(torch._utils._flatten_dense_tensors(tensors))
    flat += number_like(number, flat)
    return list(torch._utils._unflatten_dense_tensors(flat, tensors))


def share_elements(tensors: Sequence[Tensor]) -> bool:
    """Whether two tensors overlap in memory, or one is expanded.

    Autograd may return such gradients. Overlaps of views with gaps may be missed.
    Nothing waits for a GPU.
    """
    parts = shards.parts_of(tensors)
    values = [t._values() if t.is_sparse else t for t in parts]
    if any([0 in v.stride() for v in values if not v.is_contiguous()]):
        return True
    starts = set(map(Tensor.data_ptr, values))
    # Views of one storage begin at the same address, or at an offset.
    if len(starts) == len(values) and not any(map(Tensor.storage_offset, values)):
        return False
    spans = sorted([(v.data_ptr(), v.nbytes) for v in values if v.numel()])
    return any([start + size > after for (start, size), (after, _) in pairwise(spans)])


def part_by_part(
    tensors: Sequence[Tensor], operation: Callable[[Sequence[Tensor]], Sequence[Tensor]]
) -> list[Tensor]:
    """Return the results of an operation that needs tensors of one device and dtype.

    ``operation`` is called once for each device and dtype.
    """
    parts = alike(tensors)
    if len(parts) == 1:
        return list(operation(tensors))
    by_place: dict[int, Tensor] = {}
    for positions in parts:
        results = operation([tensors[k] for k in positions])
        by_place.update(zip(positions, results, strict=True))
    return [by_place[k] for k in range(len(tensors))]


def alike(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Group the positions of tensors by device and dtype."""
    # The usual case comes first, because comparing or hashing many devices is slow.
    if len({t.dtype for t in tensors}) == 1 and all([t.is_cpu for t in tensors]):
        return [list(range(len(tensors)))]
    kinds = [(tensor.device, tensor.dtype) for tensor in tensors]
    if kinds and all([kind == kinds[0] for kind in kinds]):
        return [list(range(len(kinds)))]
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = defaultdict(list)
    for position, kind in enumerate(kinds):
        groups[kind].append(position)
    return list(groups.values())


def runs(tensors: Sequence[Tensor], on_cpu: int = CPU_RUN) -> list[list[int]]:
    """Group positions as :func:`alike`, and split the groups as :func:`runs_alike`."""
    return [
        run for group in alike(tensors) for run in runs_alike(tensors, group, on_cpu)
    ]


def runs_alike(
    tensors: Sequence[Tensor], positions: Sequence[int], on_cpu: int = CPU_RUN
) -> list[list[int]]:
    """Split the positions of tensors that share a device and a dtype into runs.

    A run has at most ``on_cpu`` elements on the CPU and ``RUN`` elsewhere, or it is one
    larger tensor. On the CPU a launch costs little, but the result of one launch should
    still be in the cache when the next one reads it.
    """
    longest = on_cpu if tensors[positions[0]].is_cpu else RUN
    sizes = [tensors[position].numel() for position in positions]
    if sum(sizes) <= longest:
        return [list(positions)]
    all_runs: list[list[int]] = [[]]
    size = 0
    for position, elements in zip(positions, sizes, strict=True):
        if all_runs[-1] and size + elements > longest:
            all_runs.append([])
            size = 0
        all_runs[-1].append(position)
        size += elements
    return all_runs
