"""LARC: multiply each gradient by a ratio of its variable's norm to its own norm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lockstep.checks import is_positive, require
from lockstep.errors import DtypeError, OutOfRangeError, unknown_name
from lockstep.interface import Array, Rows
from lockstep.reference import arrays
from lockstep.reference.arrays import LARGEST, lane_sum, map_values

LARC = "LARC"
MODES = ("clip", "scale")


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

    Strict: types and names are checked, ranges are not.

    Raises:
        OutOfRangeError: a ValueError; ``larc_eta`` is missing, or a number is no float
            or out of range.
        UnknownNameError: a ValueError; an unknown name or mode.
    """
    if not isinstance(larc_params, Mapping) or not larc_params:
        raise OutOfRangeError(
            f"{LARC}: larc_params: expected a dict of parameters with larc_eta, got "
            f"{larc_params!r}; write {{'larc_eta': 0.001}}."
        )
    known = LarcPolicy._fields[:-1]
    for name, value in larc_params.items():
        if name not in known:
            raise unknown_name(f"{LARC}: larc_params", name, known)
        if name == "larc_mode":
            if value not in MODES:
                raise unknown_name(f"{LARC}: larc_mode", value, MODES)
            continue
        require(LARC, name, value, isinstance(value, float), "a float")
        if not strict:  # clip-limit
            fine = is_positive(value) if name == "larc_eta" else 0 <= value < math.inf
            expected = "> 0, finite" if name == "larc_eta" else ">= 0, finite"
            require(LARC, name, value, fine, expected)
    if "larc_eta" not in larc_params:
        raise OutOfRangeError(
            f"{LARC}: larc_params: expected an entry 'larc_eta', got "
            f"{', '.join(larc_params)}; give the ratio of update to weight, such as "
            "0.001."
        )
    return LarcPolicy(**larc_params, strict=strict)


def tensor_norm(tensor: Array | Rows) -> Array:
    """Return the norm sqrt(sum of squares), duplicate rows summed: float32 and 0-d."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(arrays.summed_values(tensor).astype(np.float32))
        return np.asarray(np.sqrt(lane_sum(squares)))


def raw_ratio(policy: LarcPolicy, rate: Array, weight: Array, gradient: Array) -> Array:
    """Return the ratio before it is limited to 1, float32 and 0-d.

    clip:  max(eta |w| / (lr (|g| + epsilon)), min_update)
    scale: max(eta |w| / (|g| + epsilon), min_update)

    By default, if both norms are finite, 1 where a norm is 0, and in mode "clip" also
    where lr is 0.

    Args:
        policy: the parameters of LARC.
        rate: the learning rate, float32, 0-d.
        weight: |w|, float32, 0-d.
        gradient: |g|, float32, 0-d.
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
    """Return a gradient times the ratio, which is rounded to the gradient's dtype."""
    return map_values(lambda v: v * cast_ratio(ratio, v.dtype), gradient)


def cast_ratio(ratio: Array, dtype: np.dtype[Any]) -> Array:
    """Round a ratio to ``dtype``; for half precision, clamp it first."""
    if str(dtype) in LARGEST:
        return arrays.saturating_cast(ratio, dtype)
    return ratio.astype(dtype)


def as_rate(lr: Any, strict: bool) -> Array:
    """Return the learning rate in float32, 0-d.

    Raises:
        OutOfRangeError: a ValueError; no number, negative or not finite.
        DtypeError: a TypeError; strict (clip-limit): a tensor that is not float32.
    """
    rate = np.asarray(lr)
    is_number = np.issubdtype(rate.dtype, np.number) and not rate.shape
    is_tensor = isinstance(lr, np.ndarray | np.generic)
    in_range = strict or is_tensor or (is_number and bool(0 <= rate < math.inf))
    expected = "a finite number >= 0, or a 0-d tensor"
    remedy = "pass the learning rate of this step"
    require(LARC, "lr", lr, is_number and in_range, expected, remedy)
    if strict and is_tensor and rate.dtype != np.float32:
        raise DtypeError(
            f"{LARC}: expected lr to be a number or a float32 tensor, got "
            f"{rate.dtype}; cast it, or leave strict off."
        )
    return rate.astype(np.float32)
