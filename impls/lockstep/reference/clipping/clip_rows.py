"""Row clipping: limit the 2-norm of a variable over some of its axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lockstep.interface import Array
from lockstep.messages.clipping.variable_clipping import MARGINS
from lockstep.quirks import Quirks
from lockstep.reference.tensors.zero_test import flush_subnormals

__all__ = ["clip_rows", "excess", "flushed", "normalize_rows", "row_norms"]

LANES = 8


def clip_rows(
    values: Array, axes: Sequence[int], max_norm: float
) -> tuple[Array, Array]:
    """Return ``values`` with each norm over ``axes`` at most ``max_norm``.

    ``wide`` is the dtype of w, or float32 for half precision. The steps are:
    n = sqrt(sum over axes of w^2), in float64; limit = max_norm rounded to ``wide``.
    Where n <= limit, w keeps its bits. Elsewhere f = limit / n, computed in float64 and
    rounded to ``wide``; w' = w f, computed in ``wide`` and rounded to the dtype of w.
    If the norm of w' is still above the limit because of rounding,
    f = limit / n (1 - margin) instead, with the margins of
    :data:`lockstep.messages.clipping.variable_clipping.MARGINS`. So n' <= limit, and
    clipping w' again does not change it.

    A norm of NaN makes its row NaN. An infinite norm makes finite elements 0.

    Args:
        values: a variable, or [k, ...] rows of it; any shape.
        axes: distinct axes; without any, each element is its own norm.
        max_norm: the largest norm that is not clipped, > 0 and finite.

    Returns:
        The clipped values, and a bool array that is True where the norm was too large;
        its ``axes`` have length 1.
    """
    wide = np.promote_types(values.dtype, np.float32)
    limit = np.float64(wide.type(max_norm))
    norms = norms_in_float64(values, axes)
    too_large = np.asarray(~(norms <= limit))
    clipped = scaled(values, limit / norms, wide)
    shorter = scaled(values, limit / norms * (1 - MARGINS[str(values.dtype)]), wide)
    above = norms_in_float64(clipped, axes) > limit
    return np.where(too_large, np.where(above, shorter, clipped), values), too_large


def norms_in_float64(values: Array, axes: Sequence[int]) -> Array:
    """Return sqrt(sum over axes of w^2); summed ``axes`` keep length 1."""
    squares = np.square(values.astype(np.float64))
    return np.asarray(np.sqrt(np.sum(squares, axis=tuple(axes), keepdims=True)))


def scaled(values: Array, factors: Array, wide: np.dtype[Any]) -> Array:
    """Return w f in the dtype of w, with f rounded to ``wide`` first."""
    product = values.astype(wide) * factors.astype(wide)
    return np.asarray(product.astype(values.dtype))


def excess(
    values: Array, axes: Sequence[int], max_norm: float, quirks: Quirks
) -> Array:
    """Return w - c, which the original subtracts from w, even below the limit.

    c is the result of :func:`normalize_rows` in the variable's own dtype. As in the
    original's kernels, subnormal float32 inputs and outputs become 0.
    """
    flush = quirks.row_clip_subnormals
    values = flushed(values, flush)
    own = quirks.row_clip_float16
    working = values if own else values.astype(np.promote_types(values.dtype, "f4"))
    clipped = normalize_rows(working, axes, max_norm, flush).astype(values.dtype)
    difference = flushed(values - clipped, flush)
    if quirks.row_clip_below:
        return difference
    above = row_norms(working, axes, flush) > working.dtype.type(max_norm)
    return np.where(above, difference, values.dtype.type(0))


def normalize_rows(
    values: Array, axes: Sequence[int], max_norm: float, flush: bool
) -> Array:
    """Return c = w max_norm / max(n, max_norm), where n is the norm over ``axes``."""
    limit = flushed(np.asarray(max_norm, values.dtype), flush)
    product = flushed(np.asarray(values * limit), flush)
    longest = np.maximum(row_norms(values, axes, flush), limit)
    return flushed(product / longest, flush)


def row_norms(values: Array, axes: Sequence[int], flush: bool) -> Array:
    """Return n = sqrt(sum over axes of w^2); summed ``axes`` keep length 1."""
    squares = flushed(np.square(values), flush)
    return np.asarray(np.sqrt(sum_over(squares, axes)))


def flushed(values: Array, flush: bool) -> Array:
    """Return ``values``; if ``flush`` is set, subnormals become 0."""
    return flush_subnormals(values) if flush else values


def sum_over(values: Array, axes: Sequence[int]) -> Array:
    """Return the sum over ``axes``, which keep length 1, in the original's order.

    The original's kernel adds element by element. If ``axes`` are the last axes, the
    elements of a sum are contiguous, and it adds them as :func:`lane_sum` does.
    """
    rank = values.ndim
    axes = [axis % rank for axis in axes]
    others = [axis for axis in range(rank) if axis not in axes]
    shape = [1 if axis in axes else values.shape[axis] for axis in range(rank)]
    length = int(np.prod([values.shape[axis] for axis in axes]))
    rows = values.transpose(*others, *sorted(axes)).reshape(int(np.prod(shape)), length)
    contiguous = others == list(range(len(others)))
    add = lane_sum if contiguous else plain_sum
    sums = np.array([add(row) for row in rows], values.dtype)
    return sums.reshape(shape)


def lane_sum(values: Array) -> Any:
    """Add [n] values in eight lanes, fold the lanes in halves, add the remainder.

    For half precision the lanes are folded in float32 and rounded once.
    """
    whole = values.size - values.size % LANES
    lanes = np.add.reduce(values[:whole].reshape(-1, LANES), axis=0)
    folded = lanes.astype(np.promote_types(values.dtype, np.float32))
    while folded.size > 1:
        folded = folded[: folded.size // 2] + folded[folded.size // 2 :]
    return folded[0].astype(values.dtype) + plain_sum(values[whole:])


def plain_sum(values: Array) -> Any:
    """Add [n] values one after the other."""
    total = values.dtype.type(0)
    for value in values:
        total = total + value
    return total
