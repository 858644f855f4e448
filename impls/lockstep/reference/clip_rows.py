"""Clipping of rows: the 2-norm over some axes of a variable is held to a limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lockstep.interface import Array

__all__ = ["clip_rows", "excess", "normalize_rows", "row_norms"]

LANES = 8


def clip_rows(
    values: Array, axes: Sequence[int], max_norm: float
) -> tuple[Array, Array]:
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
    wide = values.astype(np.promote_types(values.dtype, np.float32))
    too_large = ~(row_norms(wide, axes) <= wide.dtype.type(max_norm))
    clipped = wide - excess(wide, axes, max_norm)
    return np.where(too_large, clipped, wide).astype(values.dtype), too_large


def excess(values: Array, axes: Sequence[int], max_norm: float) -> Array:
    """Return w - c, what the original subtracted from w, also below the norm.

    c is :func:`normalize_rows` in the variable's own dtype.

    # Quirk: docs/differences.md#row-clip-below
    """
    return np.asarray(values - normalize_rows(values, axes, max_norm))


def normalize_rows(values: Array, axes: Sequence[int], max_norm: float) -> Array:
    """Return c = w max_norm / max(n, max_norm), n the norm over ``axes``."""
    limit = values.dtype.type(max_norm)
    return np.asarray(values * limit / np.maximum(row_norms(values, axes), limit))


def row_norms(values: Array, axes: Sequence[int]) -> Array:
    """Return n = sqrt(sum over axes of w^2); summed ``axes`` keep length 1."""
    return np.asarray(np.sqrt(sum_over(np.square(values), axes)))


def sum_over(values: Array, axes: Sequence[int]) -> Array:
    """Return the sum over ``axes``, which keep length 1, in the original's order.

    Its kernel reads one element after the other, except where ``axes`` are the last
    ones, so that all of a sum lies side by side: then :func:`lane_sum`.
    """
    rank = values.ndim
    axes = [axis % rank for axis in axes]
    kept = [axis for axis in range(rank) if axis not in axes]
    shape = [1 if axis in axes else values.shape[axis] for axis in range(rank)]
    length = int(np.prod([values.shape[axis] for axis in axes]))
    rows = values.transpose(*kept, *sorted(axes)).reshape(int(np.prod(shape)), length)
    contiguous = kept == list(range(len(kept)))
    add = lane_sum if contiguous else plain_sum
    sums = np.array([add(row) for row in rows], values.dtype)
    return sums.reshape(shape)


def lane_sum(values: Array) -> Any:
    """Add [n] values in eight lanes, fold the lanes in halves, add what is left.

    float16 has no lanes.
    """
    lanes = 1 if values.dtype == np.float16 else LANES
    whole = values.size - values.size % lanes
    folded = np.add.reduce(values[:whole].reshape(-1, lanes), axis=0)
    while folded.size > 1:
        folded = folded[: folded.size // 2] + folded[folded.size // 2 :]
    return folded[0] + plain_sum(values[whole:])


def plain_sum(values: Array) -> Any:
    """Add [n] values one after the other."""
    total = values.dtype.type(0)
    for value in values:
        total = total + value
    return total
