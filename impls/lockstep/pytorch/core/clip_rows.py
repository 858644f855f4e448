"""Clipping of rows: the 2-norm over some axes of a variable is held to a limit."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.pytorch.core.numbers import rounded
from lockstep.pytorch.core.roots import sqrt
from lockstep.spec.variable_clipping import MARGINS

__all__ = ["clip_rows", "excess", "normalize_rows", "row_norms"]


def clip_rows(
    values: Tensor, axes: Sequence[int], max_norm: float
) -> tuple[Tensor, Tensor]:
    """Return ``values`` with each norm over ``axes`` at most ``max_norm``.

    In this order, with ``wide`` the dtype of w, but float32 for half precision:
    n = sqrt(sum over axes of w^2), in float64; limit = max_norm rounded to ``wide``.
    Where n <= limit, w stays to the bit. Elsewhere f = limit / n, taken in float64 and
    rounded to ``wide``, and w' = w f, taken in ``wide`` and rounded to the dtype of w.
    Where rounding has left the norm of that above the limit, f = limit / n (1 - margin)
    instead, by :data:`lockstep.spec.variable_clipping.MARGINS`. So n' <= limit: clipped
    again, w' stays.

    A norm that is NaN makes its row NaN; an infinite one makes finite elements 0.

    # Quirk: docs/differences.md#row-clip-written

    Args:
        values: a variable, or [k, ...] rows of it; any shape.
        axes: distinct axes; none takes the norm of each element.
        max_norm: the largest norm that is left as it is, > 0 and finite.

    Returns:
        The clipped values, and which norms were too large: bool, ``axes`` of length 1.
    """
    real = values.dtype.to_real() if values.is_complex() else values.dtype
    wide = torch.promote_types(real, torch.float32)
    limit = rounded(max_norm, wide)
    norms = norms_in_float64(values, axes)
    too_large = (norms <= limit).logical_not_()
    factors = torch.where(too_large, limit / norms, 1.0)
    clipped = (values * factors.to(wide)).to(values.dtype)
    above = norms_in_float64(clipped, axes) > limit
    margin = MARGINS[str(real).removeprefix("torch.")]
    factors = torch.where(above & too_large, factors * (1 - margin), factors)
    return (values * factors.to(wide)).to(values.dtype), too_large


def norms_in_float64(values: Tensor, axes: Sequence[int]) -> Tensor:
    """Return sqrt(sum over axes of abs(w)^2); summed ``axes`` keep length 1."""
    # An empty list of axes would mean all of them.
    if not axes:
        return values.abs().double()
    wide = torch.promote_types(values.dtype, torch.float64)
    return torch.linalg.vector_norm(values, dim=tuple(axes), keepdim=True, dtype=wide)


def excess(values: Tensor, axes: Sequence[int], max_norm: float) -> Tensor:
    """Return w - c, what the original subtracted, also below the norm.

    c is :func:`normalize_rows` in the variable's own dtype.

    # Quirk: docs/differences.md#row-clip-below
    """
    return values - normalize_rows(values, axes, max_norm)


def normalize_rows(values: Tensor, axes: Sequence[int], max_norm: float) -> Tensor:
    """Return c = w max_norm / max(n, max_norm), n the norm over ``axes``."""
    return divided(values, row_norms(values, axes), max_norm)


def row_norms(values: Tensor, axes: Sequence[int]) -> Tensor:
    """Return n = sqrt(sum over axes of w^2); summed ``axes`` keep length 1."""
    squares = values.abs().square() if values.is_complex() else values.square()
    # An empty list of axes would mean all of them.
    sums = squares.sum(tuple(axes), keepdim=True) if axes else squares
    return sqrt(sums)


def divided(values: Tensor, norms: Tensor, max_norm: float) -> Tensor:
    """Return w max_norm / max(n, max_norm); NaN where n is."""
    limit = rounded(max_norm, norms.dtype)
    return values * limit / torch.clamp(norms, min=limit)
