"""The words of AutomaticLossScaler: parameters of Backoff and LogMax, and checks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lockstep.spec.errors import (
    DtypeError,
    OutOfRangeError,
    UnknownNameError,
    UnsupportedError,
    nearest,
    sentence,
)
from lockstep.spec.ranges import is_positive, require

__all__ = [
    "ALGORITHMS",
    "SCALER",
    "BackoffPolicy",
    "LogMaxPolicy",
    "algorithm_name",
    "automatic_policy",
    "check_amax_dtype",
    "check_check_grads_dtypes",
    "check_state",
]

SCALER = "AutomaticLossScaler"
ALGORITHMS = ["backoff", "logmax"]


class BackoffPolicy(NamedTuple):
    """Parameters of Backoff; ``nan_overflows``: a NaN amax is an overflow."""

    scale_min: float = 1.0
    scale_max: float = 2.0**14
    step_factor: float = 2.0
    step_window: int = 2000
    nan_overflows: bool = True


class LogMaxPolicy(NamedTuple):
    """Parameters of LogMax.

    Attributes:
        overflow_log: what an overflow counts as, a logarithm (strict: 2**log_max).
        target: log2 of where the largest gradient should be (strict: 16).
        guarded: a NaN amax is an overflow, an amax of zero leaves the statistics alone.
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
    """Check ``params`` and return the policy of ``backoff`` or ``logmax``.

    # Quirk: docs/differences.md#logmax-overflow
    """
    types = PARAMETERS[algorithm]
    params = {} if params is None else dict(params)
    for name, value in params.items():
        if name not in types:
            raise _unknown("params", name, types)
        if not isinstance(value, types[name]):
            remedy = f"write {types[name].__name__}(...) of it"
            expected = f"of type {types[name].__name__}"
            text = sentence(f"{SCALER}: {name}", expected, repr(value), remedy)
            raise OutOfRangeError(text)
    if algorithm == "backoff":
        backoff = BackoffPolicy(**params, nan_overflows=not strict)
        return backoff if strict else _checked_backoff(backoff)
    policy = LogMaxPolicy(**params)
    if strict:
        with_quirks = {"overflow_log": _power_of_two(policy.log_max), "target": 16.0}
        return policy._replace(**with_quirks, guarded=False)
    policy = policy._replace(overflow_log=policy.log_max, target=policy.log_max)
    return _checked_logmax(policy)


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
        require("LogMax", name, value, math.isfinite(value), "finite")
    return policy


def _check_bounds(name: str, policy: BackoffPolicy | LogMaxPolicy) -> None:
    low, high = policy.scale_min, policy.scale_max
    require(name, "scale_min", low, is_positive(low), "> 0, finite")
    fine = low <= high < math.inf
    require(name, "scale_max", high, fine, ">= scale_min, finite")


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
    """Raise for gradients of several dtypes."""
    if len(set(dtypes)) > 1:
        got = " and ".join(sorted(set(dtypes)))
        remedy = "cast them to one dtype first"
        expected = "gradients of one dtype"
        raise DtypeError(sentence(f"{SCALER}.check_grads", expected, got, remedy))


def check_amax_dtype(dtype: str) -> None:
    """Strict LogMax: raise unless the amax is float32."""
    if dtype != "float32":
        remedy = "cast it, or leave strict off"
        text = sentence(f"{SCALER}.update_op", "a float32 amax", dtype, remedy)
        raise DtypeError(text)


def check_state(algorithm: str, found: Any, fields: Sequence[str]) -> None:
    """Raise unless ``found`` holds exactly these entries, as plain numbers."""
    fine = isinstance(found, Mapping) and set(found) == set(fields)
    if not fine:
        got = ", ".join(map(str, found)) if isinstance(found, Mapping) else repr(found)
        remedy = "load what state_dict() of the same algorithm returned"
        subject, expected = f"{SCALER}: state of {algorithm}", ", ".join(fields)
        raise UnsupportedError(sentence(subject, expected, got, remedy))
