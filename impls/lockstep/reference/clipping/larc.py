"""LARC: multiply each gradient by a ratio of its variable's norm to its own norm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lockstep.interface import Array, Rows
from lockstep.messages.clipping.larc import LarcPolicy
from lockstep.messages.masters.mixed_precision import LARGEST
from lockstep.reference.clipping.clip_gradients import lane_sum
from lockstep.reference.tensors.half import saturating_cast
from lockstep.reference.tensors.rows import densify, sum_duplicates

__all__ = ["larc_ratio", "raw_ratio", "scale_by_ratios", "tensor_norms"]


def tensor_norms(tensors: Sequence[Array | Rows]) -> list[Array]:
    """Return the norm sqrt(sum of squares) of each tensor, float32 and 0-d.

    Rows of a sparse gradient that share an index are summed first.
    """
    return [tensor_norm(values_of(tensor)) for tensor in tensors]


def tensor_norm(values: Array) -> Array:
    """Return sqrt(sum of squares) in float32: 0-d."""
    with np.errstate(over="ignore", invalid="ignore"):
        norm: Array = np.sqrt(lane_sum(np.square(values.astype(np.float32))))
        return norm


def values_of(gradient: Array | Rows) -> Array:
    """Return the values of a gradient, with duplicate rows summed."""
    if isinstance(gradient, Rows):
        return sum_duplicates(gradient).values
    return gradient


def raw_ratio(policy: LarcPolicy, rate: Array, weight: Array, gradient: Array) -> Array:
    """Return the ratio before it is limited to 1, float32 and 0-d.

    clip:  max(eta |w| / (lr (|g| + epsilon)), min_update)
    scale: max(eta |w| / (|g| + epsilon), min_update)

    If both norms are finite, a guarded policy returns 1 where a norm is 0, and in mode
    "clip" also where lr is 0.

    Args:
        policy: the parameters of LARC.
        rate: the learning rate, float32, 0-d.
        weight: |w|, float32, 0-d.
        gradient: |g|, float32, 0-d.
    """
    one, least = np.float32(1), np.float32(policy.min_update)
    eta, epsilon = np.float32(policy.eta), np.float32(policy.epsilon)
    with np.errstate(all="ignore"):
        divisor, still = gradient + epsilon, weight == 0 or gradient == 0
        if policy.mode == "clip":
            divisor, still = rate * divisor, still or rate == 0
        if policy.guarded and still and np.isfinite(weight + gradient):
            return np.asarray(one)
        return np.asarray(np.maximum(eta * weight / divisor, least))


def larc_ratio(policy: LarcPolicy, raw: Array) -> Array:
    """Return the ratio: min(raw, 1) in mode "clip", else the raw ratio."""
    return np.asarray(np.minimum(raw, np.float32(1))) if policy.mode == "clip" else raw


def scale_by_ratios(
    gradients: Sequence[Array | Rows], ratios: Sequence[Array]
) -> list[Array | Rows]:
    """Return each gradient times its ratio, rounded to the gradient's dtype first."""
    return [scale_by_ratio(*pair) for pair in zip(gradients, ratios, strict=True)]


def scale_by_ratio(gradient: Array | Rows, ratio: Array) -> Array | Rows:
    """Return a gradient times the ratio, which is rounded to the gradient's dtype.

    In half precision the ratio is clamped to the largest magnitude first.
    """
    dtype = (gradient.values if isinstance(gradient, Rows) else gradient).dtype
    factor = cast_ratio(ratio, dtype)
    with np.errstate(all="ignore"):
        if isinstance(gradient, Rows):
            return gradient._replace(values=gradient.values * factor)
        return np.asarray(gradient * factor)


def cast_ratio(ratio: Array, dtype: np.dtype[np.generic]) -> Array:
    """Round a ratio to ``dtype``; for half precision, clamp it first."""
    halves = str(dtype) in LARGEST
    return saturating_cast(ratio, dtype) if halves else ratio.astype(dtype)


def as_original(gradient: Array | Rows, shape: tuple[int, ...]) -> Array:
    """Return a sparse gradient as a dense one."""
    return densify(gradient, shape) if isinstance(gradient, Rows) else gradient
