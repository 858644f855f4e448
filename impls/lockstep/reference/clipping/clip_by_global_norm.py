"""OpenSeq2Seq's clipping by the global norm: everything in float32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lockstep.interface import Array, Gradient, Rows
from lockstep.reference.clipping.clip_gradients import global_norm

__all__ = ["clip_scale", "norm_in_float32", "scale_in_float32"]


def norm_in_float32(gradients: Sequence[Gradient], one_by_one: bool = False) -> Array:
    """Return sqrt(sum of squares) of the gradients that are not None, in float32.

    Without any gradient the norm is 0. Rows of a sparse gradient that share an index
    are summed first, unless ``one_by_one`` is set.
    """
    present = [gradient for gradient in gradients if gradient is not None]
    if one_by_one:
        present = [g.values if isinstance(g, Rows) else g for g in present]
    return global_norm(present, np.dtype(np.float32))


def clip_scale(norm: Array, clip_norm: float) -> Array:
    """Return s = clip_norm min(1 / norm, 1 / clip_norm) in float32: 0-d.

    A norm of 0 gives 1 or the float32 next to it. An infinite norm gives 0, and NaN
    gives NaN.
    """
    one, limit = np.float32(1), np.float32(clip_norm)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(limit * np.minimum(one / norm, one / limit))


def scale_in_float32(gradients: Sequence[Gradient], scale: Array) -> list[Gradient]:
    """Return float32(g) scale for each gradient g; None stays None."""
    return [None if g is None else scale_one(g, scale) for g in gradients]


def scale_one(gradient: Array | Rows, scale: Array) -> Array | Rows:
    """Return one gradient in float32, times ``scale``."""
    if isinstance(gradient, Rows):
        return gradient._replace(values=gradient.values.astype(np.float32) * scale)
    with np.errstate(invalid="ignore"):
        return np.asarray(gradient.astype(np.float32) * scale)
