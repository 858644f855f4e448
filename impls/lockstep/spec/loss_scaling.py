"""The words of loss scaling: parameters, their checks, and what every host says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lockstep.interface import StepReport
from lockstep.spec.errors import (
    DtypeError,
    MissingLossScaleError,
    NotScalableError,
    OutOfRangeError,
    ScaleStalledError,
    UnknownNameError,
    UnsupportedError,
    nearest,
    sentence,
)

__all__ = [
    "ALGORITHMS",
    "AT_FLOOR",
    "PATIENCE",
    "BackoffPolicy",
    "DynamicPolicy",
    "LogMaxPolicy",
    "ScaledStepReport",
    "algorithm_name",
    "automatic_policy",
    "bad_identifier",
    "check_amax_dtype",
    "check_at_floor",
    "check_check_grads_dtypes",
    "check_gradient_dtype",
    "check_state",
    "dynamic_config",
    "dynamic_policy",
    "fixed_value",
    "half_precision",
    "missing_loss_scale",
    "not_an_optimizer",
    "report",
    "stalled",
    "without_dense_shape",
]

WRAPPER = "MixedPrecisionLossScaleOptimizer"
SCALER = "AutomaticLossScaler"
ALGORITHMS = ["backoff", "logmax"]
AT_FLOOR = ("warn", "raise")
PATIENCE = 100
"""So many skipped steps in a row, the scale at its floor, are a stall."""


class ScaledStepReport(StepReport):
    """A report that also names the variables whose gradients were not finite."""

    nonfinite: tuple[str, ...] = ()

    @classmethod
    def of(cls, report: StepReport, nonfinite: Sequence[str]) -> ScaledStepReport:
        """Return ``report`` with these names."""
        made = cls(*report)
        made.nonfinite = tuple(nonfinite)
        return made


class DynamicPolicy(NamedTuple):
    """What :class:`DynamicLossScale` was made with; all but the first for the rule."""

    initial_loss_scale: float
    increment_period: int
    multiplier: float
    floor: float
    ceiling: float


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


def fixed_value(value: Any) -> float:
    """Return the scale of :class:`FixedLossScale`; NaN and infinity pass, as ever.

    Raises:
        OutOfRangeError: neither int nor float, or below 1.
    """
    subject = "FixedLossScale: loss_scale_value"
    remedy = "give the factor for the loss"
    if not isinstance(value, int | float):
        text = sentence(subject, "an int or float", repr(value), remedy)
        raise OutOfRangeError(text)
    if value < 1:
        raise OutOfRangeError(sentence(subject, "a number >= 1", repr(value), remedy))
    return float(value)


def dynamic_policy(
    initial_loss_scale: Any,
    increment_period: Any,
    multiplier: Any,
    floor: float | None = None,
    ceiling: float | None = None,
    strict: bool = False,
) -> DynamicPolicy:
    """Convert the arguments of :class:`DynamicLossScale`, and check them by default.

    # Quirk: docs/differences.md#dynamic-scale-floor. Strict: floor 1, no ceiling, no
    check. By default the floor is 1, or the initial scale if that is less.
    """
    initial, factor = float(initial_loss_scale), float(multiplier)
    period = int(increment_period)
    if strict:
        return DynamicPolicy(initial, period, factor, 1.0, math.inf)
    name = "DynamicLossScale"
    _require(name, "initial_loss_scale", initial, _positive(initial), "> 0, finite")
    _require(name, "increment_period", period, period >= 1, ">= 1")
    fine = 1 < factor < math.inf
    _require(name, "multiplier", factor, fine, "> 1 (an overflow divides by it)")
    least = min(1.0, initial) if floor is None else float(floor)
    most = math.inf if ceiling is None else float(ceiling)
    fine = 0 < least <= initial
    _require(name, "floor", least, fine, "> 0, at most initial_loss_scale")
    _require(name, "ceiling", most, most >= initial, ">= initial_loss_scale")
    return DynamicPolicy(initial, period, factor, least, most)


def dynamic_config(policy: DynamicPolicy, strict: bool) -> dict[str, Any]:
    """Return ``get_config()``: floor and ceiling only where they were chosen."""
    config: dict[str, Any] = dict(list(policy._asdict().items())[:3])
    if not strict:
        if policy.floor != min(1.0, policy.initial_loss_scale):
            config["floor"] = policy.floor
        if policy.ceiling != math.inf:
            config["ceiling"] = policy.ceiling
    return config


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
    _require("Backoff", "step_factor", factor, 1 < factor < math.inf, expected)
    _require("Backoff", "step_window", window, window >= 1, ">= 1")
    return policy


def _checked_logmax(policy: LogMaxPolicy) -> LogMaxPolicy:
    _check_bounds("LogMax", policy)
    for name in ("beta1", "beta2"):
        value = getattr(policy, name)
        _require("LogMax", name, value, 0 <= value < 1, "in [0, 1)")
    for name in ("log_max", "overflow_std_dev"):
        value = getattr(policy, name)
        _require("LogMax", name, value, math.isfinite(value), "finite")
    return policy


def _check_bounds(name: str, policy: BackoffPolicy | LogMaxPolicy) -> None:
    low, high = policy.scale_min, policy.scale_max
    _require(name, "scale_min", low, _positive(low), "> 0, finite")
    fine = low <= high < math.inf
    _require(name, "scale_max", high, fine, ">= scale_min, finite")


def _require(owner: str, name: str, value: Any, fine: bool, expected: str) -> None:
    if not fine:
        remedy = "choose such a value, or leave it out"
        text = sentence(f"{owner}: {name}", expected, repr(value), remedy)
        raise OutOfRangeError(text)


def _positive(value: float) -> bool:
    return 0 < value < math.inf


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


def bad_identifier(identifier: Any) -> UnknownNameError:
    """Build the error for what ``get`` cannot turn into a loss scale."""
    expected = "a number, 'dynamic' or a loss scale"
    remedy = "for a scale that follows the gradients give 'dynamic'"
    return UnknownNameError(sentence("loss_scale", expected, repr(identifier), remedy))


def missing_loss_scale() -> MissingLossScaleError:
    """Build the error for ``loss_scale=None``."""
    expected, remedy = "a loss scale", "give a number or 'dynamic'"
    return MissingLossScaleError(sentence(WRAPPER, expected, "None", remedy))


def not_an_optimizer(opt: object, expected: str) -> NotScalableError:
    """Build the error for an ``opt`` that cannot be wrapped."""
    got, remedy = type(opt).__name__, "pass the optimizer whose loss is to be scaled"
    if isinstance(opt, type):
        got, remedy = f"the class {opt.__name__}", "pass an instance"
    return NotScalableError(sentence(WRAPPER, f"a {expected}", got, remedy))


def check_at_floor(at_floor: Any, floor_patience: Any) -> None:
    """Raise unless both arguments of the wrapper are admissible."""
    if at_floor not in AT_FLOOR:
        expected = " or ".join(map(repr, AT_FLOOR))
        remedy = "say what a stalled run is to do"
        text = sentence(f"{WRAPPER}: at_floor", expected, repr(at_floor), remedy)
        raise OutOfRangeError(text)
    fine = isinstance(floor_patience, int) and floor_patience >= 1
    _require(WRAPPER, "floor_patience", floor_patience, fine, "an int >= 1")


def check_gradient_dtype(dtype: str) -> None:
    """Raise for integer gradients, which are neither finite nor not."""
    if "float" not in dtype:
        remedy = "cast the gradients"
        text = sentence("DynamicLossScale", "floating-point gradients", dtype, remedy)
        raise DtypeError(text)


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


def half_precision(what: str) -> DtypeError:
    """Strict: a float16 loss or variable, which a float32 scale cannot multiply.

    # Quirk: docs/differences.md#loss-scale-float16
    """
    remedy = "the original cannot scale it; leave strict off"
    return DtypeError(sentence(WRAPPER, "float32", f"{what} in float16", remedy))


def without_dense_shape(name: str) -> UnsupportedError:
    """Strict: a sparse gradient of which nobody knows the shape."""
    remedy = "the original cannot sum its rows; leave strict off"
    expected = f"a dense shape for {name}"
    return UnsupportedError(sentence("DynamicLossScale", expected, "None", remedy))


def report(
    inner: StepReport | None,
    names: Sequence[str],
    nonfinite: Sequence[str],
    scales: tuple[float, float],
    applied: bool | None = None,
) -> ScaledStepReport:
    """Say whether a step was applied, which tensors were not finite, and the scale.

    Args:
        inner: the ``last_step`` of the wrapped optimizer if it was called and has one.
        names: of all variables of the step.
        nonfinite: names of those whose gradients were not finite.
        scales: the loss scale before and after the step.
        applied: given only where non-finite gradients are applied (strict, fixed).
    """
    before, after = (f"{scale:g}" for scale in scales)
    moved = f"loss scale {before}" + (f" -> {after}" if after != before else "")
    applied = not nonfinite if applied is None else applied
    if not applied:
        reason = f"skipped, not finite: {', '.join(nonfinite)}; {moved}"
        skipped = StepReport(False, reason, tuple(names))
        return ScaledStepReport.of(skipped, nonfinite)
    if inner is not None:
        told = inner._replace(reason=f"{inner.reason}; {moved}")
        return ScaledStepReport.of(StepReport(*told), nonfinite)
    found = f"applied, not finite: {', '.join(nonfinite)}" if nonfinite else "finite"
    step = StepReport(True, f"{found}; {moved}", ())
    return ScaledStepReport.of(step, nonfinite)


def stalled(skips: int, scale: float, nonfinite: Sequence[str]) -> ScaleStalledError:
    """Build the error, or the warning, for a run that skips every step at the floor."""
    return ScaleStalledError(
        sentence(
            WRAPPER,
            "a finite step now and then",
            f"{skips} skipped in a row at loss scale {scale:g}, "
            f"not finite: {', '.join(nonfinite)}",
            "look at these gradients, or lower the floor",
        )
    )
