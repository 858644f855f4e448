"""LARC: multiply each gradient by a ratio of its variable's norm to its own norm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lockstep.checks import is_positive, require
from lockstep.errors import DtypeError, unknown_name
from lockstep.interface import Array, Rows
from lockstep.reference import arrays
from lockstep.reference.arrays import SINGLE

LARC, MODES = "LARC", ("clip", "scale")


class LarcPolicy(NamedTuple):
    """LARC's parameters; the numbers are rounded to float32 where they are used.

    Attributes:
        larc_eta: the trust coefficient: the ratio of an update's norm to its weight's
            norm, > 0.
        larc_mode: "clip" never raises the rate, "scale" replaces it.
        min_update: the smallest ratio, >= 0.
        epsilon: added to the gradient's norm, >= 0.
        strict: whether a norm of 0 is computed with as any other.
    """

    larc_eta: float
    larc_mode: str = "clip"
    min_update: float = 1e-7
    epsilon: float = 1e-7
    strict: bool = False


def larc_policy(larc_params: Mapping[str, Any], strict: bool = False) -> LarcPolicy:
    """Check ``larc_params``, a dict with the names of :class:`LarcPolicy`.

    Strict: types and names are checked, ranges are not. Raises a ValueError.
    """
    fine = isinstance(larc_params, Mapping) and "larc_eta" in larc_params
    require(LARC, "larc_params", larc_params, fine, "a dict with larc_eta, a float")
    for name, value in larc_params.items():
        if name not in LarcPolicy._fields[:-1]:
            raise unknown_name(f"{LARC}: larc_params", name, LarcPolicy._fields[:-1])
        if name == "larc_mode":
            if value not in MODES:
                raise unknown_name(f"{LARC}: larc_mode", value, MODES)
            continue
        require(LARC, name, value, isinstance(value, float), "a float")
        if not strict:  # clip-limit
            fine = is_positive(value) if name == "larc_eta" else 0 <= value < math.inf
            expected = "> 0, finite" if name == "larc_eta" else ">= 0, finite"
            require(LARC, name, value, fine, expected)
    return LarcPolicy(**larc_params, strict=strict)


def as_rate(lr: Any, strict: bool) -> Array:
    """Return the learning rate in float32, 0-d; raise for what is none."""
    rate = np.asarray(lr)
    is_tensor = isinstance(lr, np.ndarray | np.generic)
    if not strict and not is_tensor:  # clip-limit
        fine = 0 <= lr < math.inf
        require(LARC, "lr", lr, fine, "a finite number >= 0, or a 0-d tensor")
    if strict and is_tensor and rate.dtype != SINGLE:  # clip-limit
        raise DtypeError(
            f"{LARC}: expected lr to be a number or a float32 tensor, got "
            f"{rate.dtype}; cast it, or leave strict off."
        )
    return rate.astype(SINGLE)


def tensor_norm(tensor: Array | Rows) -> Array:
    """Return the norm sqrt(sum of squares), duplicate rows summed: float32 and 0-d."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(arrays.summed_values(tensor).astype(SINGLE))
        return np.asarray(np.sqrt(arrays.lane_sum(squares)))


def raw_ratio(policy: LarcPolicy, rate: Array, weight: Array, gradient: Array) -> Array:
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
        guarded = not policy.strict  # larc-zero-norm
        if guarded and still and np.isfinite(weight + gradient):
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
