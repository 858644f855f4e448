"""Clipping of rows: the 2-norm over some axes of a variable is held to a limit."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.pytorch.core.numbers import rounded
from lockstep.pytorch.core.roots import sqrt

__all__ = ["clip_rows", "excess", "normalize_rows", "row_norms"]


def clip_rows(
    values: Tensor, axes: Sequence[int], max_norm: float
) -> tuple[Tensor, Tensor]:
    """Return ``values`` with each norm over ``axes`` at most ``max_norm``.

    n = sqrt(sum over axes of w^2); where n <= max_norm, w stays to the bit; elsewhere
    c = w max_norm / n and w' = w - (w - c), the original's order. Half precision is
    widened to float32 first and rounded once, at the end. A norm that is NaN makes its
    row NaN.

    Args:
        values: a variable, or [k, ...] rows of it; any shape.
        axes: distinct axes from 0 on; none takes the norm of each element.
        max_norm: the largest norm that is left as it is, > 0 and finite.

    Returns:
        The clipped values, and which norms were too large: bool, ``axes`` of length 1.
    """
    half = values.dtype in (torch.float16, torch.bfloat16)
    wide = values.float() if half else values
    norms = row_norms(wide, axes)
    too_large = (norms <= rounded(max_norm, norms.dtype)).logical_not_()
    clipped = wide - (wide - divided(wide, norms, max_norm))
    return torch.where(too_large, clipped.to(values.dtype), values), too_large


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
