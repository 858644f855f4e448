"""Clipping by the global norm over the gradients that are present and not all zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lockstep.interface import Array, Gradient, Rows
from lockstep.reference.tensors.rows import sum_duplicates
from lockstep.reference.tensors.zero_test import flush_subnormals

__all__ = ["clip_factor", "global_norm", "lane_sum", "scale_gradients"]

LANES, LEAF = 8, 1 << 13


def global_norm(
    gradients: Sequence[Array | Rows], dtype: np.dtype[Any], flush: bool = False
) -> Array:
    """Return sqrt(sum of squares) over all elements of all gradients, in ``dtype``.

    As in ``tf.linalg.global_norm``, half the sum of squares is computed per tensor, and
    the total is doubled. Without gradients the norm is 0. With ``flush``, subnormal
    squares and subnormal halves become 0, as in the original's kernels.
    """
    total = np.zeros((), dtype)
    for gradient in gradients:
        total = total + half_square_sum(gradient, dtype, flush)
    norm: Array = np.sqrt(total * dtype.type(2))
    return norm


def half_square_sum(gradient: Array | Rows, dtype: np.dtype[Any], flush: bool) -> Array:
    """Return sum(g^2 / 2) in ``dtype``, with duplicate rows summed first.

    The squares are halved one by one, as ``tf.nn.l2_loss`` does.
    """
    if isinstance(gradient, Rows):
        gradient = sum_duplicates(gradient).values
    with np.errstate(over="ignore", invalid="ignore"):
        halves = np.square(gradient.astype(dtype)) * dtype.type(0.5)
        return lane_sum(flush_subnormals(halves) if flush else halves)


def lane_sum(values: Array) -> Array:
    """Return the sum of all elements, in their dtype: 0-d.

    Up to 8192 elements, the additions have the order of the original's kernel: eight
    lanes are summed, the lanes are folded in halves (for half precision in float32,
    rounded once), then the remaining elements are added. For more elements the original
    uses threads, in an order that depends on the machine. These are summed in float64
    here, and the sum is rounded once.
    """
    flat = values.ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        if flat.size > LEAF:
            return np.asarray(np.sum(flat, dtype=np.float64).astype(flat.dtype))
        whole = flat.size - flat.size % LANES
        lanes = np.add.reduce(flat[:whole].reshape(-1, LANES), axis=0)
        lanes = lanes.astype(np.promote_types(flat.dtype, np.float32))
        while lanes.size > 1:
            lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
        rest = np.zeros((), flat.dtype)
        for value in flat[whole:]:
            rest = rest + value
        return np.asarray(lanes[0].astype(flat.dtype) + rest)


def clip_factor(norm: Array, clip_norm: float, flush: bool = False) -> Array:
    """Return s = clip_norm min(1 / norm, 1 / clip_norm), NaN for a non-finite norm.

    With ``flush``, a subnormal limit, reciprocal or s becomes 0.
    """
    one, limit = norm.dtype.type(1), norm.dtype.type(clip_norm)
    if not np.isfinite(norm):
        return np.full((), np.nan, norm.dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        if not flush:
            return np.asarray(limit * np.minimum(one / norm, one / limit))
        limit = flush_subnormals(limit)
        smaller = flush_subnormals(np.minimum(one / norm, one / limit))
        return flush_subnormals(limit * smaller)


def scale_gradients(gradients: Sequence[Gradient], factor: Array) -> list[Gradient]:
    """Return each gradient times ``factor`` in its own dtype; None stays None."""
    return [None if g is None else scale_gradient(g, factor) for g in gradients]


def scale_gradient(gradient: Array | Rows, factor: Array) -> Array | Rows:
    """Return one gradient, or the rows of a sparse one, times ``factor``."""
    if isinstance(gradient, Rows):
        scaled = gradient.values * factor.astype(gradient.values.dtype)
        return gradient._replace(values=scaled)
    return np.asarray(gradient * factor.astype(gradient.dtype))
