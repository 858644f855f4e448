"""Row clipping on tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from lockstep.messages.clipping.variable_clipping import MARGINS
from lockstep.pytorch.clipping.clip_gradients import LEAF, folded
from lockstep.pytorch.tensors.rounding import rounded, sqrt
from lockstep.pytorch.tensors.zero_test import flush_subnormals
from lockstep.quirks import Quirks

__all__ = [
    "clip_rows",
    "compare",
    "excess",
    "flushed",
    "normalize_rows",
    "row_norms",
    "shorten",
]

BLOCK = 1 << 16
"""Number of elements that, with float64 copies of them, fit into a core's cache."""


def clip_rows(
    values: Tensor, axes: Sequence[int], max_norm: float
) -> tuple[Tensor, Tensor]:
    """Return ``values`` with their norms over ``axes`` clipped.

    The rule is the same as in :func:`lockstep.reference.clipping.clip_rows.clip_rows`.
    """
    norms, too_large = compare(values, axes, max_norm)
    return shorten(values, norms, axes, max_norm), too_large


def compare(
    values: Tensor, axes: Sequence[int], max_norm: float
) -> tuple[Tensor, Tensor]:
    """Return the norms over ``axes``, and whether they are too large."""
    norms = norms_in_float64(values, axes)
    return norms, (norms <= limit_of(values, max_norm)).logical_not_()


def shorten(
    values: Tensor, norms: Tensor, axes: Sequence[int], max_norm: float
) -> Tensor:
    """Return ``values``, clipped by their ``norms`` over ``axes``."""
    wide, limit = wide_dtype(values), limit_of(values, max_norm)
    margin = MARGINS[str(values.dtype.to_real()).removeprefix("torch.")]
    # 1 where the norm is not too large, and NaN where it is NaN.
    factors = norms.reciprocal().mul_(limit).clamp_(max=1.0)
    clipped = torch.empty_like(values)
    torch.mul(values, factors.to(wide), out=clipped)
    above = norms_in_float64(clipped, axes) > limit
    # On a GPU this check would be a host sync.
    if above.is_cpu and not above.any():
        return clipped
    factors = torch.where(above, factors * (1 - margin), factors)
    return torch.mul(values, factors.to(wide), out=clipped)


def limit_of(values: Tensor, max_norm: float) -> float:
    """Return ``max_norm`` in the precision in which ``values`` are clipped."""
    return rounded(max_norm, wide_dtype(values))


def wide_dtype(values: Tensor) -> torch.dtype:
    """Return the real dtype in which ``values`` are clipped."""
    return torch.promote_types(values.dtype.to_real(), torch.float32)


def norms_in_float64(values: Tensor, axes: Sequence[int]) -> Tensor:
    """Return sqrt(sum over axes of abs(w)^2); summed ``axes`` keep length 1."""
    # An empty list of axes would mean all of them.
    if not axes:
        return values.abs().double()
    wide = torch.promote_types(values.dtype, torch.float64)
    if not values.is_cpu or values.numel() <= BLOCK or min(axes) < 1:
        return norms_at_once(values, tuple(axes), wide)
    blocks = values.split(max(BLOCK * len(values) // values.numel(), 1))
    return torch.cat([norms_at_once(block, tuple(axes), wide) for block in blocks])


def norms_at_once(values: Tensor, axes: tuple[int, ...], wide: torch.dtype) -> Tensor:
    """Return norms of a copy in ``wide``; ``axes`` keep length 1."""
    return torch.linalg.vector_norm(values, 2, axes, True, dtype=wide)


def excess(
    values: Tensor, axes: Sequence[int], max_norm: float, quirks: Quirks
) -> Tensor:
    """Return w - c, which the original subtracts, also from rows below the limit.

    Subnormals are as in :func:`lockstep.reference.clipping.clip_rows.excess`.
    """
    flush = quirks.row_clip_subnormals
    values = flushed(values, flush)
    wide = torch.promote_types(values.dtype, torch.float32)
    working = values if quirks.row_clip_float16 else values.to(wide)
    clipped = normalize_rows(working, axes, max_norm, flush).to(values.dtype)
    difference = flushed(values - clipped, flush)
    if quirks.row_clip_below:
        return difference
    above = row_norms(working, axes, flush) > max_norm
    return torch.where(above, difference, 0)


def normalize_rows(
    values: Tensor, axes: Sequence[int], max_norm: float, flush: bool
) -> Tensor:
    """Return c, the rows of w with norms of at most ``max_norm``."""
    return divided(values, row_norms(values, axes, flush), max_norm, flush)


def row_norms(values: Tensor, axes: Sequence[int], flush: bool) -> Tensor:
    """Return the norms over ``axes``, which keep length 1."""
    squares = values.abs().square() if values.is_complex() else values.square()
    return sqrt(sum_over(flushed(squares, flush), axes))


def sum_over(values: Tensor, axes: Sequence[int]) -> Tensor:
    """Return the sum over ``axes``, which keep length 1, in the order of TensorFlow.

    If ``axes`` are the last ones, the elements of a sum are contiguous and are added in
    eight lanes; see :func:`folded`. Otherwise they are added one after the other. A sum
    of more than :data:`LEAF` elements has torch's order, because the original's order
    would take that many operations in Python.
    """
    if not axes:
        return values
    rank = values.dim()
    summed = sorted(axis % rank for axis in axes)
    others = [axis for axis in range(rank) if axis not in summed]
    shape = [1 if k in summed else size for k, size in enumerate(values.shape)]
    rows = values.permute(*others, *summed).flatten(len(others))
    rows = rows.reshape(math.prod(shape), rows.shape[-1])
    if rows.shape[1] > LEAF:
        return rows.sum(1).view(shape)
    if others == list(range(len(others))):
        return folded(rows).view(shape)
    start = rows.new_zeros(len(rows))
    return reduce(torch.add, rows.unbind(1), start).view(shape)


def divided(values: Tensor, norms: Tensor, max_norm: float, flush: bool) -> Tensor:
    """Return w max_norm / max(n, max_norm); NaN where n is NaN."""
    limit = torch.full_like(norms, rounded(max_norm, norms.dtype))
    limit = flushed(limit, flush)
    product = flushed(values * limit, flush)
    return flushed(product / torch.maximum(norms, limit), flush)


def flushed(values: Tensor, flush: bool) -> Tensor:
    """Return ``values``; with ``flush``, subnormals become zero."""
    return flush_subnormals(values) if flush else values
