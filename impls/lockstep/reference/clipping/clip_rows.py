"""Clipping of rows: the 2-norm over some axes of a variable is held to a limit."""

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

    In this order, with ``wide`` the dtype of w, but float32 for half precision:
    n = sqrt(sum over axes of w^2), in float64; limit = max_norm rounded to ``wide``.
    Where n <= limit, w stays to the bit. Elsewhere f = limit / n, taken in float64 and
    rounded to ``wide``, and w' = w f, taken in ``wide`` and rounded to the dtype of w.
    Where rounding has left the norm of that above the limit, f = limit / n (1 - margin)
    instead, by :data:`lockstep.messages.clipping.variable_clipping.MARGINS`. So n' <=
    limit: clipped again, w' stays.

    A norm that is NaN makes its row NaN; an infinite one makes finite elements 0.

    Args:
        values: a variable, or [k, ...] rows of it; any shape.
        axes: distinct axes; none takes the norm of each element.
        max_norm: the largest norm that is left as it is, > 0 and finite.

    Returns:
        The clipped values, and which norms were too large: bool, ``axes`` of length 1.
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
    """Return w f, f rounded to ``wide`` first, in the dtype of w."""
    product = values.astype(wide) * factors.astype(wide)
    return np.asarray(product.astype(values.dtype))


def excess(
    values: Array, axes: Sequence[int], max_norm: float, quirks: Quirks
) -> Array:
    """Return w - c, what the original subtracted from w, also below the norm.

    c is :func:`normalize_rows` in the variable's own dtype. As in the original's
    kernels a subnormal float32 is 0, what they read and what they return.
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
    """Return c = w max_norm / max(n, max_norm), n the norm over ``axes``."""
    limit = flushed(np.asarray(max_norm, values.dtype), flush)
    product = flushed(np.asarray(values * limit), flush)
    longest = np.maximum(row_norms(values, axes, flush), limit)
    return flushed(product / longest, flush)


def row_norms(values: Array, axes: Sequence[int], flush: bool) -> Array:
    """Return n = sqrt(sum over axes of w^2); summed ``axes`` keep length 1."""
    squares = flushed(np.square(values), flush)
    return np.asarray(np.sqrt(sum_over(squares, axes)))


def flushed(values: Array, flush: bool) -> Array:
    """Return ``values``, with ``flush`` their subnormals zero."""
    return flush_subnormals(values) if flush else values


def sum_over(values: Array, axes: Sequence[int]) -> Array:
    """Return the sum over ``axes``, which keep length 1, in the original's order.

    Its kernel reads one element after the other, except where ``axes`` are the last
    ones, so that all of a sum lies side by side: then :func:`lane_sum`.
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
    """Add [n] values in eight lanes, fold the lanes in halves, add what is left.

    The lanes of half precision are folded in float32, and rounded once.
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
