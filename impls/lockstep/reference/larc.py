"""LARC: multiply each gradient by a ratio of its variable's norm to its own norm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lockstep.checks import require
from lockstep.interface import Array, Rows
from lockstep.larc import LARC, LarcPolicy
from lockstep.reference import arrays
from lockstep.reference.arrays import SINGLE


def as_rate(lr: Any, strict: bool) -> Array:
    """Return the learning rate in float32, 0-d; raise for what is none."""
    if not strict and not isinstance(lr, np.ndarray | np.generic):  # clip-limit
        fine = 0 <= lr < math.inf
        require(LARC, "lr", lr, fine, "a finite number >= 0, or a 0-d tensor")
    return np.asarray(lr, SINGLE)


def tensor_norm(tensor: Array | Rows) -> Array:
    """Return the norm sqrt(sum of squares), duplicate rows summed: float32 and 0-d."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(arrays.summed_values(tensor).astype(SINGLE))
        return np.asarray(np.sqrt(arrays.lane_sum(squares)))


def raw_ratio(
    policy: LarcPolicy,
    rate: Array,
    weight: Array,
    gradient: Array,
    strict: bool = False,
) -> Array:
    """Return the ratio before it is limited to 1, of norms |w| and |g|: float32, 0-d.

    clip:  max(eta |w| / (lr (|g| + epsilon)), min_update)
    scale: max(eta |w| / (|g| + epsilon), min_update)

    By default, if both norms are finite, 1 where a norm is 0, and in mode "clip" also
    where lr is 0.
    """
    eta, epsilon = np.float32(policy.larc_eta), np.float32(policy.epsilon)
    with np.errstate(all="ignore"):
        divisor, still = gradient + epsilon, weight == 0 or gradient == 0
        if policy.larc_mode == "clip":
            divisor, still = rate * divisor, still or rate == 0
        if not strict and still and np.isfinite(weight + gradient):  # larc-zero-norm
            return np.asarray(np.float32(1))
        raw = eta * weight / divisor
        return np.asarray(np.maximum(raw, np.float32(policy.min_update)))


def larc_ratio(policy: LarcPolicy, raw: Array) -> Array:
    """Return the ratio: min(raw, 1) in mode "clip", else the raw ratio."""
    clips = policy.larc_mode == "clip"
    return np.asarray(np.minimum(raw, np.float32(1))) if clips else raw


def scale_by_ratio(gradient: Array | Rows, ratio: Array) -> Array | Rows:
    """Return a gradient times the ratio, which is rounded to the gradient's dtype.

    For half precision the ratio is clamped first.
    """

    def scaled(values: Array) -> Array:
        is_half = str(values.dtype) in arrays.LARGEST
        cast = arrays.saturating_cast if is_half else np.asarray
        return np.asarray(values * cast(ratio, values.dtype))

    return arrays.map_values(scaled, gradient)
