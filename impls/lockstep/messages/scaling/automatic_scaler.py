"""Parameters, checks and messages of AutomaticLossScaler: Backoff and LogMax."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

from lockstep.checks import HELD, is_scale, require
from lockstep.errors import (
    UnknownNameError,
    nearest,
    sentence,
)
from lockstep.messages.base.pairs import refuse_complex, refuse_integers
from lockstep.messages.scaling import refusals
from lockstep.quirks import quirks_of

__all__ = [
    "ALGORITHMS",
    "CHECK_GRADS",
    "SCALER",
    "BackoffPolicy",
    "LogMaxPolicy",
    "algorithm_name",
    "automatic_policy",
    "check_amax_dtype",
    "check_check_grads_dtypes",
    "check_update",
]

SCALER = "AutomaticLossScaler"
CHECK_GRADS = f"{SCALER}.check_grads"
ALGORITHMS = ["backoff", "logmax"]


class BackoffPolicy(NamedTuple):
    """Parameters of Backoff; ``nan_overflows``: whether a NaN amax is an overflow."""

    scale_min: float = 1.0
    scale_max: float = 2.0**14
    step_factor: float = 2.0
    step_window: int = 2000
    nan_overflows: bool = True


class LogMaxPolicy(NamedTuple):
    """Parameters of LogMax.

    Attributes:
        overflow_log: log2(amax) that an overflow counts as (strict: 2**log_max).
        target: log2 of the target for the largest scaled gradient (strict: 16).
        guarded: whether a NaN amax is an overflow, and an amax of 0 leaves the
            statistics unchanged.
    """

    scale_min: float = 1.0
    scale_max: float = 2.0**14
    log_max: float = 16.0
    beta1: float = 0.99
    beta2: float = 0.999
    overflow_std_dev: float = 3.09
    overflow_log: float = 16.0
    target: float = 16.0
    guarded: bool = True


PARAMETERS: Mapping[str, Mapping[str, type]] = {
    "backoff": {
        "scale_min": float,
        "scale_max": float,
        "step_factor": float,
        "step_window": int,
    },
    "logmax": dict.fromkeys(
        ("scale_min", "scale_max", "log_max", "beta1", "beta2", "overflow_std_dev"),
        float,
    ),
}


def algorithm_name(algorithm: Any) -> str:
    """Return ``backoff`` or ``logmax``; spaces and case do not matter."""
    name = algorithm.strip().lower() if isinstance(algorithm, str) else algorithm
    if name not in ALGORITHMS:
        raise _unknown("algorithm", algorithm, ["Backoff", "LogMax"])
    return str(name)


def automatic_policy(
    algorithm: str, params: Mapping[str, Any] | None, strict: bool = False
) -> BackoffPolicy | LogMaxPolicy:
    """Check ``params`` and return the policy of ``backoff`` or ``logmax``."""
    types, quirks = PARAMETERS[algorithm], quirks_of(strict)
    if params is not None and not isinstance(params, Mapping):
        raise refusals.PARAMS_NOT_A_DICT.error(got=params, example=next(iter(types)))
    params = {} if params is None else dict(params)
    for name, value in params.items():
        if name not in types:
            raise _unknown("params", name, types)
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if types[name] is float and whole and not quirks.backoff_range:
            params[name] = float(value)
        elif not isinstance(value, types[name]):
            raise refusals.PARAMETER_TYPE.error(
                name=name, expected=types[name].__name__, got=value
            )
    if algorithm == "backoff":
        quirk = quirks.backoff_range
        backoff = BackoffPolicy(**params, nan_overflows=not quirk)
        return backoff if quirk else _checked_backoff(backoff)
    logmax = _logmax(params, quirks.logmax_overflow)
    return logmax if quirks.arguments_unchecked else _checked_logmax(logmax)


def _logmax(params: Mapping[str, Any], quirk: bool) -> LogMaxPolicy:
    policy = LogMaxPolicy(**params)
    if quirk:
        with_quirks = {"overflow_log": _power_of_two(policy.log_max), "target": 16.0}
        return policy._replace(**with_quirks, guarded=False)
    return policy._replace(overflow_log=policy.log_max, target=policy.log_max)


def _checked_backoff(policy: BackoffPolicy) -> BackoffPolicy:
    _check_bounds("Backoff", policy)
    factor, window = policy.step_factor, policy.step_window
    expected = "> 1 (on overflow the scale is divided by it)"
    require("Backoff", "step_factor", factor, 1 < factor < math.inf, expected)
    require("Backoff", "step_window", window, window >= 1, ">= 1")
    return policy


def _checked_logmax(policy: LogMaxPolicy) -> LogMaxPolicy:
    _check_bounds("LogMax", policy)
    for name in ("beta1", "beta2"):
        value = getattr(policy, name)
        require("LogMax", name, value, 0 <= value < 1, "in [0, 1)")
    for name in ("log_max", "overflow_std_dev"):
        value = getattr(policy, name)
        require("LogMax", name, value, math.isfinite(value), "a finite number")
    return policy


def _check_bounds(name: str, policy: BackoffPolicy | LogMaxPolicy) -> None:
    low, high = policy.scale_min, policy.scale_max
    require(name, "scale_min", low, is_scale(low), HELD)
    fine = low <= high and is_scale(high)
    require(name, "scale_max", high, fine, ">= scale_min, finite in float32")


def _power_of_two(exponent: float) -> float:
    try:
        return float(2.0**exponent)
    except OverflowError:
        return math.inf


def _unknown(what: str, got: Any, known: Any) -> UnknownNameError:
    close = nearest(str(got), known)
    remedy = f"did you mean {close!r}" if close else "choose one of them"
    expected = f"one of {', '.join(known)}"
    text = sentence(f"{SCALER}: {what}", expected, repr(got), remedy)
    return UnknownNameError(text.removesuffix(".") + "?" if close else text)


def check_check_grads_dtypes(dtypes: Sequence[str]) -> None:
    """Raise for gradients of several dtypes, and for integer or complex gradients."""
    refuse_integers(CHECK_GRADS, dtypes)
    refuse_complex(CHECK_GRADS, dtypes)
    if len(set(dtypes)) > 1:
        got = " and ".join(sorted(set(dtypes)))
        raise refusals.SEVERAL_DTYPES.error(got=got)


def check_amax_dtype(dtype: str) -> None:
    """Strict LogMax: raise unless ``amax`` is float32."""
    if dtype != "float32":
        raise refusals.AMAX_DTYPE.error(got=dtype)


def check_update(has_nan: Any, amax: Any, arguments_unchecked: bool) -> None:
    """Raise for an invalid flag or maximum; the values of tensors are not checked.

    By default a maximum must be >= 0, -inf (no elements) or NaN (an overflow).
    """
    if type(has_nan) is bool and type(amax) is float and amax >= 0:
        return
    subject, remedy = f"{SCALER}.update_op", "pass what check_grads returned"
    if not hasattr(has_nan, "dtype"):
        fine = isinstance(has_nan, Integral) and has_nan in (0, 1)
        require(subject, "has_nan", has_nan, fine, "a bool", remedy)
    if hasattr(amax, "dtype") and not isinstance(amax, Real):
        return
    fine = isinstance(amax, Real) and not isinstance(amax, bool)
    require(subject, "amax", amax, fine, "a number", remedy)
    fine = arguments_unchecked or not -math.inf < amax < 0
    require(subject, "amax", amax, fine, "a magnitude, >= 0", remedy)
