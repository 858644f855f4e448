"""Lists of tensors in few launches: all that Lockstep uses of ``torch._foreach_*``.

These names begin with an underscore (torch 2.13 has no public ones), so they stay here.
A list may mix devices and dtypes: it is cut into parts that one launch can take.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["clamp", "copy", "scale", "square_sums"]


def clamp(tensors: Sequence[Tensor], largest: float) -> list[Tensor]:
    """Return tensors with magnitudes of at most ``largest``; NaN stays NaN."""
    clamped = torch._foreach_clamp_max(tensors, largest)
    torch._foreach_clamp_min_(clamped, -largest)
    return list(clamped)


def copy(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors into others of their shapes, cast to their dtypes."""
    if targets:
        torch._foreach_copy_(targets, sources)


def scale(tensors: Sequence[Tensor], factor: Tensor) -> list[Tensor]:
    """Return each tensor times the 0-d ``factor``, which is cast to its dtype first."""
    scaled: dict[int, Tensor] = {}
    for positions in alike(tensors):
        part = [tensors[k] for k in positions]
        products = torch._foreach_mul(part, factor.to(part[0]))
        scaled.update(zip(positions, products, strict=True))
    return [scaled[k] for k in range(len(tensors))]


def square_sums(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return each tensor's sum of squares: squared in ``dtype``, added in float64."""
    sums: dict[int, Tensor] = {}
    for positions in alike(tensors):
        part = [tensors[k].to(dtype) for k in positions]
        squares = torch._foreach_mul(part, part)
        totals = torch._foreach_norm(squares, 1, dtype=torch.float64)
        sums.update(zip(positions, totals, strict=True))
    return [sums[k] for k in range(len(tensors))]


def alike(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Group the positions of tensors by device and dtype."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for position, tensor in enumerate(tensors):
        groups.setdefault((tensor.device, tensor.dtype), []).append(position)
    return list(groups.values())
