"""Loss scaling in plain numbers: arguments, the rules that move a scale, reports.

The rules compute float32 numbers on the host, so that backends can share them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from lockstep.checks import HELD, check_norm_limit, is_scale, number_of, require
from lockstep.errors import OutOfRangeError, UnsupportedError, unknown_name
from lockstep.interface import StepReport

Single = np.float32
ZERO, ONE, LOG_2 = Single(0), Single(1), Single(np.log(2.0))
SMALLEST_NORMAL = np.finfo(Single).smallest_normal

# -- DynamicLossScale ------------------------------------------------------------------


class DynamicPolicy(NamedTuple):
    """The arguments of ``DynamicLossScale``, checked."""

    initial_loss_scale: float
    increment_period: int
    multiplier: float
    floor: float
    ceiling: float = math.inf
    growth_factor: float | None = None
    backoff_factor: float | None = None
    hysteresis: int = 1
    tolerance: float = 0.0

    @property
    def growth(self) -> float:
        """The factor of growth."""
        return self.growth_factor or self.multiplier

    @property
    def is_patient(self) -> bool:
        """Whether an overflow may keep the scale; only then are overflows counted."""
        return self.hysteresis > 1 or self.tolerance > 0


class DynamicState(NamedTuple):
    """The state between two steps: numbers, or 0-d tensors.

    Attributes:
        loss_scale: a float32 number.
        good_steps: finite steps since the last overflow or growth.
        overflows: overflows since the scale last grew. When the scale is lowered, this
            becomes hysteresis - 1, so that the next overflow lowers it again.
        steps: all steps since the scale was last lowered or due to grow.
    """

    loss_scale: Any
    good_steps: Any
    overflows: Any = 0
    steps: Any = 0


def dynamic_policy(
    initial: Any, period: Any, multiplier: Any, floor: Any, ceiling: Any, **options: Any
) -> DynamicPolicy:
    """Check the arguments of ``DynamicLossScale``.

    ``options``: the last four fields of :class:`DynamicPolicy`.
    """
    owner = "DynamicLossScale"
    scale, steps = number_of(initial), number_of(period)
    least = min(1.0, scale) if floor is None else number_of(floor)
    most = math.inf if ceiling is None else number_of(ceiling)
    growth, backoff = options["growth_factor"], options["backoff_factor"]
    hysteresis, share = options["hysteresis"], number_of(options["tolerance"])
    fine = steps >= 1 and steps.is_integer()
    counts = isinstance(hysteresis, Integral) and not isinstance(hysteresis, bool)
    require(owner, "initial_loss_scale", initial, is_scale(scale), HELD)
    require(owner, "increment_period", period, fine, "a whole number >= 1")
    factors = {"multiplier": multiplier, "growth_factor": growth}
    for name, value in factors.items():
        if value is not None or name == "multiplier":
            fine = 1 < number_of(value) < math.inf
            require(owner, name, value, fine, "> 1, finite")
    fine = 0 < least <= scale
    require(owner, "floor", floor, fine, "> 0, at most initial_loss_scale")
    require(owner, "ceiling", ceiling, most >= scale, ">= initial_loss_scale")
    if backoff is not None:
        fine = 0 < number_of(backoff) < 1
        require(owner, "backoff_factor", backoff, fine, "in (0, 1)")
    require(owner, "hysteresis", hysteresis, counts and hysteresis >= 1, "an int >= 1")
    require(owner, "tolerance", options["tolerance"], 0 <= share < 1, "in [0, 1)")
    if hysteresis > 1 and share > 0:
        raise OutOfRangeError(
            f"{owner}: expected hysteresis or tolerance, which count overflows "
            f"differently, got hysteresis={hysteresis} and tolerance={share:g}; leave "
            "one of them out."
        )
    return DynamicPolicy(
        scale,
        int(steps),
        number_of(multiplier),
        least,
        most,
        None if growth is None else number_of(growth),
        None if backoff is None else number_of(backoff),
        int(hysteresis),
        share,
    )


@np.errstate(all="ignore")
def step_dynamic(
    policy: DynamicPolicy, state: DynamicState, finite: bool
) -> DynamicState:
    """Return the next state; ``finite``: whether all gradients of the step are."""
    scale, good, overflows, steps = state
    if finite and good + 1 < policy.increment_period:
        return DynamicState(scale, good + 1, overflows, steps + 1)
    if finite:
        grown = min(Single(scale) * Single(policy.growth), Single(policy.ceiling))
        return DynamicState(float(grown) if np.isfinite(grown) else scale, 0)
    overflows, steps = overflows + 1, steps + 1
    if overflows < policy.hysteresis or overflows / steps < policy.tolerance:
        return DynamicState(scale, 0, overflows, steps)
    if policy.backoff_factor is None:
        smaller = Single(scale) / Single(policy.multiplier)
    else:
        smaller = Single(scale) * Single(policy.backoff_factor)
    smaller = max(smaller, Single(policy.floor))
    return DynamicState(float(smaller), 0, policy.hysteresis - 1)


# -- AutomaticLossScaler ---------------------------------------------------------------


class BackoffPolicy(NamedTuple):
    """The parameters of Backoff. Strict: a NaN maximum is no overflow."""

    scale_min: float = 1.0
    scale_max: float = 2.0**14
    step_factor: float = 2.0
    step_window: int = 2000
    strict: bool = False


class LogMaxPolicy(NamedTuple):
    """The parameters of LogMax.

    Strict: an overflow counts as 2^log_max, the target is 2^16 whatever ``log_max`` is,
    a NaN maximum is no overflow, and after one maximum of 0 the scale stays NaN.
    """

    scale_min: float = 1.0
    scale_max: float = 2.0**14
    log_max: float = 16.0
    beta1: float = 0.99
    beta2: float = 0.999
    overflow_std_dev: float = 3.09
    strict: bool = False


class BackoffState(NamedTuple):
    """The scale (float32), the number of steps, and the step of the last overflow."""

    loss_scale: Any
    iteration: int = 0
    last_overflow_iteration: int = -1


class LogMaxState(NamedTuple):
    """The scale, the number of steps, running means, and powers of beta: float32.

    Attributes:
        loss_scale: the scale of the next step.
        iteration: number of steps so far.
        x_hat: running mean of x = log2(amax) with beta1.
        slow_x_hat: running mean of x with beta2, for the variance.
        xsquared_hat: running mean of x^2 with beta2, for the variance.
        b1_correction: beta1^t after t steps; a mean is divided by 1 - beta1^t.
        b2_correction: beta2^t.
    """

    loss_scale: Any = ONE
    iteration: int = 0
    x_hat: Any = ZERO
    slow_x_hat: Any = ZERO
    xsquared_hat: Any = ZERO
    b1_correction: Any = ONE
    b2_correction: Any = ONE


Automatic = BackoffPolicy | LogMaxPolicy

RANGES: Mapping[str, tuple[Any, str]] = {
    "scale_min": (is_scale, HELD),
    "scale_max": (is_scale, HELD),
    "step_factor": (
        lambda factor: 1 < factor < math.inf,
        "> 1 (on overflow the scale is divided by it)",
    ),
    "step_window": (lambda window: window >= 1, ">= 1"),
    "beta1": (lambda beta: 0 <= beta < 1, "in [0, 1)"),
    "beta2": (lambda beta: 0 <= beta < 1, "in [0, 1)"),
    "log_max": (math.isfinite, "a finite number"),
    "overflow_std_dev": (math.isfinite, "a finite number"),
}
"""Parameter -> its check, and what it expects."""


def automatic_policy(
    algorithm: Any, params: Any, strict: bool = False
) -> tuple[str, Automatic]:
    """Return the name of the algorithm and its checked parameters."""
    owner = "AutomaticLossScaler"
    name = algorithm.strip().lower() if isinstance(algorithm, str) else algorithm
    if name not in ("backoff", "logmax"):
        raise unknown_name(f"{owner}: algorithm", algorithm, ["Backoff", "LogMax"])
    kind: Any = BackoffPolicy if name == "backoff" else LogMaxPolicy
    if params is not None and not isinstance(params, Mapping):
        raise OutOfRangeError(
            f"{owner}: params: expected a dict or None, got {params!r}; "
            "write {'scale_min': 1.0}, for example."
        )
    chosen: dict[str, Any] = {}
    for key, value in (params or {}).items():
        if key not in RANGES or key not in kind._fields:
            raise unknown_name(f"{owner}: params", key, kind._fields[:-1])
        cast = int if key == "step_window" else float
        number = Integral if cast is int else Real
        fits = isinstance(value, cast if strict else number)
        if not fits or isinstance(value, bool):
            raise OutOfRangeError(
                f"{owner}: {key}: expected {cast.__name__}, got {value!r}; "
                f"convert it with {cast.__name__}(...)."
            )
        chosen[key] = cast(value)
    policy = kind(**chosen, strict=strict)
    if not strict:
        owner = "Backoff" if name == "backoff" else "LogMax"
        for key, value in policy._asdict().items():
            if key in RANGES:
                fits, expected = RANGES[key]
                require(owner, key, value, fits(value), expected)
        fine = policy.scale_min <= policy.scale_max
        require(owner, "scale_max", policy.scale_max, fine, ">= scale_min")
    return name, policy


def start_automatic(policy: Automatic) -> Any:
    """Return the state before the first step."""
    is_backoff = isinstance(policy, BackoffPolicy)
    return BackoffState(Single(policy.scale_max)) if is_backoff else LogMaxState()


def step_automatic(policy: Automatic, state: Any, has_nan: bool, amax: float) -> Any:
    """Return the next state; an ``amax`` that is not finite is an overflow."""
    overflow = has_nan or math.isinf(amax) or (amax != amax and not policy.strict)
    if isinstance(policy, BackoffPolicy):
        return step_backoff(policy, state, overflow)
    return step_logmax(policy, state, overflow, amax)


def step_backoff(policy: BackoffPolicy, state: Any, overflow: bool) -> Any:
    """An overflow divides; each ``step_window`` steps after the last, it multiplies."""
    scale, i, last = state
    if overflow or (i - last) % policy.step_window == 0:
        factor = Single(policy.step_factor)
        with np.errstate(all="ignore"):
            scale = scale / factor if overflow else scale * factor
        scale = max(min(scale, Single(policy.scale_max)), Single(policy.scale_min))
    return BackoffState(scale, i + 1, i if overflow else last)


@lru_cache
def singles(policy: LogMaxPolicy) -> list[Any]:
    """Round the parameters to float32 once; 1 - beta is computed in float64."""
    low, high, target, beta1, beta2, deviations, strict = policy
    overflow_log = target
    if strict:
        with np.errstate(over="ignore"):
            overflow_log, target = float(np.exp2(target)), 16.0
    numbers = beta1, 1 - beta1, beta2, 1 - beta2, deviations, target, low, high
    return list(map(Single, (*numbers, overflow_log)))


@np.errstate(all="ignore")
def step_logmax(policy: LogMaxPolicy, state: Any, overflow: bool, amax: float) -> Any:
    """Follow mean and deviation of log2(amax), so that overflows stay rare.

    Kernels in float32 take the logarithm of a subnormal for that of zero.
    """
    scale, i, x_hat, slow, squared, correction1, correction2 = state
    beta1, rest1, beta2, rest2, deviations, target, low, high, at_overflow = singles(
        policy
    )
    largest = Single(amax)
    if overflow or largest == math.inf:
        x = at_overflow
    elif largest < SMALLEST_NORMAL:
        if not policy.strict:
            return state._replace(iteration=i + 1)
        x = Single(-math.inf)
    else:
        x = Single(math.log(largest)) / LOG_2
    x_hat, slow = beta1 * x_hat + rest1 * x, beta2 * slow + rest2 * x
    squared = beta2 * squared + rest2 * (x * x)
    correction1, correction2 = correction1 * beta1, correction2 * beta2
    mean = slow / (ONE - correction2)
    variance = squared / (ONE - correction2) - mean * mean
    # Only rounding makes it negative. max(NaN, 0) is NaN.
    sigma = Single(math.sqrt(max(variance, ZERO)))
    mu = x_hat / (ONE - correction1)
    scale = Single(np.exp2(float(target - (mu + deviations * sigma))))
    scale = max(min(scale, high), low)
    return LogMaxState(scale, i + 1, x_hat, slow, squared, correction1, correction2)


# -- wrappers with a loss scale --------------------------------------------------------


def check_options(owner: str, clip_norm: Any, at_floor: Any, patience: Any) -> None:
    """Check the options that all wrappers with a loss scale have."""
    if at_floor not in ("warn", "raise", "ignore"):
        raise OutOfRangeError(
            f"{owner}: at_floor: expected 'warn' or 'raise' or 'ignore', "
            f"got {at_floor!r}; choose what happens if the run stalls."
        )
    fine = isinstance(patience, int) and patience >= 1
    require(owner, "floor_patience", patience, fine, "an int >= 1")
    if clip_norm is not None:
        number = isinstance(clip_norm, Real) and not isinstance(clip_norm, bool)
        require(owner, "clip_norm", clip_norm, number, "a number > 0")
        if clip_norm != math.inf:
            remedy = "choose such a value, inf to measure only, or leave it out"
            check_norm_limit(owner, "clip_norm", clip_norm, remedy)


COUNTS = ("skipped_steps", "skipped_in_a_row")


def check_saved(owner: str, keys: Iterable[str], group: Mapping[str, Any]) -> None:
    """Raise for saved numbers of another kind of scale, or a scale that skips all."""
    own = set(keys)
    saved = {key for key in group if str(key).startswith("loss_scale")}
    if own and saved and not (saved <= own or own <= saved):
        raise UnsupportedError(
            f"{owner}: expected a state with {', '.join(sorted(own))}, got "
            f"{', '.join(sorted(saved))}; give the wrapper the kind of loss scale "
            "that the state was saved with."
        )
    remedy = "load a state that was saved with a scale, or leave its entry out"
    for key, value in group.items():
        if key in ("loss_scale", "loss_scaler_loss_scale"):
            fine = is_scale(number_of(value))
            require(owner, f"saved {key}", value, fine, HELD, remedy)
        elif key in COUNTS or key.startswith("loss_scale_"):
            fine = number_of(value) >= 0
            require(owner, f"saved {key}", value, fine, "a count", remedy)


class ScaledStepReport(StepReport):
    """A step report with the results of the finite check and of clipping.

    Attributes:
        nonfinite: names of the variables whose gradients were not finite.
        norm: the global norm of the unscaled gradients before clipping; None without
            ``clip_norm``, or if a gradient was not finite.
        clip_factor: the factor of clipping to ``clip_norm``, at most 1; None if
            ``norm`` is None or the step was skipped.
    """

    nonfinite: tuple[str, ...] = ()
    norm: float | None = None
    clip_factor: float | None = None

    @classmethod
    def of(
        cls,
        report: StepReport,
        nonfinite: Sequence[str],
        norm: float | None = None,
        clip_factor: float | None = None,
    ) -> ScaledStepReport:
        """Return ``report`` with these results."""
        scaled = cls(*report)
        scaled.nonfinite = tuple(nonfinite)
        scaled.norm, scaled.clip_factor = norm, clip_factor
        return scaled

    def __repr__(self) -> str:
        """Show every field; a tuple's own repr omits the added ones."""
        names = (*self._fields, "nonfinite", "norm", "clip_factor")
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({fields})"

    def _replace(self, **changes: Any) -> ScaledStepReport:
        """Return a changed copy that keeps the added fields, for outer wrappers."""
        copy = super()._replace(**changes)
        return self.of(copy, self.nonfinite, self.norm, self.clip_factor)


def report(
    inner: StepReport | None,
    names: Sequence[str],
    nonfinite: Sequence[str],
    scales: tuple[float, float],
    applied: bool,
    norm: float | None,
    clip_factor: float | None,
    absent: Sequence[str],
) -> ScaledStepReport:
    """Return the report of a step: applied or skipped, non-finite tensors, the scale.

    ``inner``: the ``last_step`` of the wrapped optimizer if it was called and has one.
    ``names``: of all variables, of those with non-finite gradients and of those without
    one. ``scales``: the loss scale before and after the step.
    """
    culprits = ", ".join(nonfinite) or "the norm of all gradients"
    ending = moved("loss scale", *scales)
    if norm is not None and clip_factor is not None:
        ending += f"; {moved('norm', norm, norm * clip_factor)}"
    if not applied:
        reason = f"skipped, not finite: {culprits}; {ending}"
        step = StepReport(False, reason, tuple(names))
    elif inner is not None:
        step = StepReport(*inner)._replace(reason=f"{inner.reason}; {ending}")
    else:
        outcome = f"applied, not finite: {culprits}" if nonfinite else "finite"
        outcome += f", {len(absent)} absent" if absent else ""
        step = StepReport(True, f"{outcome}; {ending}", tuple(absent))
    return ScaledStepReport.of(step, nonfinite, norm, clip_factor)


def moved(what: str, before: float, after: float) -> str:
    """Return ``what`` with its value, or with both values if they differ."""
    first, second = f"{before:g}", f"{after:g}"
    return f"{what} {first}" + (f" -> {second}" if first != second else "")
