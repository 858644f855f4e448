"""Loss scaling on tensors: how a scale moves, one scaled step, counts of skips."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import compress
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from lockstep import errors, scalers
from lockstep.checks import HELD, is_scale, number_of, require
from lockstep.interface import StepReport
from lockstep.tf.shared.clipping import (
    clip_factor,
    half_square_sums,
    scale_gradients,
)
from lockstep.tf.shared.gradients import finite_flags, is_first_replica, widen

Present = tf.Tensor | tf.IndexedSlices
Gradient = Present | None
Pairs = list[tuple[Gradient, Any]]

SMALLEST_NORMAL = float(np.finfo(np.float32).smallest_normal)
PATIENCE = 100
"""Default number of steps skipped in a row at the scale's floor that are a stall."""

# -- arguments -------------------------------------------------------------------------


def fixed_value(value: Any) -> float:
    """Return the factor of a ``FixedLossScale``, checked."""
    owner, name, remedy = "FixedLossScale", "loss_scale_value", "give the factor"
    number = number_of(value)
    fine = isinstance(value, Real) and not isinstance(value, bool)
    require(owner, name, value, fine, "an int or float", remedy)
    require(owner, name, value, number >= 1, "a number >= 1", remedy)
    require(owner, name, value, is_scale(number), HELD, remedy)
    return number


def scale_number(argument: Any) -> float:
    """Return a static scale of any size as a float; None is 1."""
    owner = "MixedPrecisionOptimizerWrapper: loss_scale"
    if argument is None:
        return 1.0
    if isinstance(argument, bool) or not isinstance(argument, Real):
        raise errors.UnknownNameError(
            f"{owner}: expected a number, None, 'dynamic', an AutomaticLossScaler or a "
            f"loss scale, got {argument!r}; for OpenSeq2Seq's scalers pass "
            "AutomaticLossScaler('Backoff')."
        )
    number = number_of(argument)
    if not is_scale(number):
        raise errors.OutOfRangeError(
            f"{owner}: expected {HELD}, got {argument!r}; give the factor for the loss,"
            " 1 for none."
        )
    return number


def bad_identifier(identifier: Any) -> errors.UnknownNameError:
    """Return the error for an argument that is no loss scale."""
    got, remedy = repr(identifier), "for one that follows the gradients give 'dynamic'"
    if type(identifier).__name__ == "AutomaticLossScaler":
        got = "an AutomaticLossScaler"
        remedy = "pass it to MixedPrecisionOptimizerWrapper, which takes it"
    return errors.UnknownNameError(
        f"loss_scale: expected a number, 'dynamic' or a loss scale, got {got}; "
        f"{remedy}."
    )


def checked_config(cls: type[Any], config: Any) -> dict[str, Any]:
    """Return the constructor's arguments in ``config``; raise for unknown names."""
    if not isinstance(config, Mapping):
        raise errors.DtypeError(
            f"{cls.__name__}.from_config: expected a dict, got {config!r}; pass what "
            "get_config() returned."
        )
    known = list(inspect.signature(cls).parameters)
    for name in config:
        if name not in known:
            kind = f"{cls.__name__}.from_config: argument"
            raise errors.UnknownArgumentError(
                str(errors.unknown_name(kind, name, known))
            )
    return dict(config)


def dynamic_config(policy: scalers.DynamicPolicy) -> dict[str, Any]:
    """Return the arguments of a dynamic scale that differ from their defaults."""
    defaults = dict(policy._field_defaults)
    defaults["floor"] = min(1.0, policy.initial_loss_scale)
    fields = policy._asdict().items()
    return {k: v for k, v in fields if k not in defaults or v != defaults[k]}


def listed_gradients(gradients: Any, owner: str) -> list[Any]:
    """Return the gradients that are to be unscaled; raise if they are not a list."""
    if tf.is_tensor(gradients) or not isinstance(gradients, Iterable):
        raise errors.MalformedPairsError(
            f"{owner}.unscale_gradients: expected a list of gradients, got "
            f"{type(gradients).__name__}; pass what the tape returned for a list of "
            "variables."
        )
    listed = list(gradients)
    if any(type(gradient) is tuple for gradient in listed):
        raise errors.MalformedPairsError(
            f"{owner}.unscale_gradients: expected gradients, got a tuple; pass the "
            "gradients alone, without their variables."
        )
    return listed


def require_floats(gradients: Iterable[Gradient]) -> list[Present]:
    """Return the gradients that are not None; raise unless they are real floats."""
    present = [gradient for gradient in gradients if gradient is not None]
    for gradient in present:
        if "float" not in gradient.dtype.name:
            raise errors.DtypeError(
                "loss scaling: expected floating-point gradients, got "
                f"{gradient.dtype.name}; cast the gradients."
            )
    return present


# -- a scale that grows and shrinks ----------------------------------------------------


def step_dynamic(
    policy: scalers.DynamicPolicy, state: Sequence[tf.Tensor], finite: tf.Tensor
) -> list[tf.Tensor]:
    """Return the state after a step, as :func:`lockstep.scalers.step_dynamic`."""
    scale, good_steps, *counts = state
    good_steps += 1
    grown = scale * tf.constant(policy.growth, tf.float32)
    if policy.ceiling < math.inf:
        grown = tf.minimum(grown, policy.ceiling)
    grown = tf.where(tf.math.is_finite(grown), grown, scale)
    due = tf.logical_and(finite, good_steps >= policy.increment_period)
    lowered = tf.logical_not(finite)
    if counts:
        lowered, counts = patience_ended(policy, counts, finite, due)
    if policy.backoff_factor is None:
        smaller = scale / tf.constant(policy.multiplier, tf.float32)
    else:
        smaller = scale * tf.constant(policy.backoff_factor, tf.float32)
    smaller = tf.maximum(smaller, policy.floor)
    goes_on = tf.logical_and(finite, tf.logical_not(due))
    return [
        tf.where(lowered, smaller, tf.where(due, grown, scale)),
        tf.where(goes_on, good_steps, tf.zeros((), tf.int64)),
        *counts,
    ]


def patience_ended(
    policy: scalers.DynamicPolicy,
    counts: Sequence[tf.Tensor],
    finite: tf.Tensor,
    due: tf.Tensor,
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Return whether this step lowers the scale, and the two counts after it."""
    overflow = tf.logical_not(finite)
    overflows, steps = counts[0] + tf.cast(overflow, tf.int64), counts[1] + 1
    share = tf.cast(overflows, tf.float64) / tf.cast(steps, tf.float64)
    ended = tf.logical_and(overflows >= policy.hysteresis, share >= policy.tolerance)
    lowered, zero = tf.logical_and(overflow, ended), tf.zeros((), tf.int64)
    first_count = tf.constant(policy.hysteresis - 1, tf.int64)
    overflows = tf.where(lowered, first_count, tf.where(due, zero, overflows))
    return lowered, [overflows, tf.where(tf.logical_or(lowered, due), zero, steps)]


# -- a scale that follows the largest gradient -----------------------------------------


def find_largest(gradients: Iterable[Gradient]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return whether any element is NaN, and the largest magnitude of the others."""
    values = [getattr(g, "values", g) for g in gradients if g is not None]
    dtypes = sorted({value.dtype.name for value in values})
    fine = all("float" in dtype for dtype in dtypes)
    if len(dtypes) > 1 or not fine:
        raise errors.DtypeError(
            "AutomaticLossScaler.check_grads: expected floating-point gradients of one "
            f"dtype, got {' and '.join(dtypes)}; cast them to one dtype first."
        )
    if not values:
        return tf.constant(False), tf.constant(-math.inf)
    has_nan = tf.stack([tf.reduce_any(tf.math.is_nan(value)) for value in values])
    nothing = tf.constant(-math.inf, values[0].dtype)
    known = [tf.where(tf.math.is_nan(v), nothing, tf.abs(v)) for v in values]
    largest = tf.stack([tf.reduce_max(value) for value in known])
    return tf.reduce_any(has_nan), tf.reduce_max(largest)


def as_update(
    policy: scalers.Automatic, has_nan: Any, amax: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a flag and a largest magnitude as tensors; check numbers."""
    owner, remedy = "AutomaticLossScaler.update_op", "pass what check_grads returned"
    if not hasattr(has_nan, "dtype"):
        require(owner, "has_nan", has_nan, has_nan in (0, 1), "a bool", remedy)
    if isinstance(amax, Real) or not hasattr(amax, "dtype"):
        fine = isinstance(amax, Real) and not isinstance(amax, bool)
        require(owner, "amax", amax, fine, "a number", remedy)
        fine = policy.strict or not -math.inf < amax < 0
        require(owner, "amax", amax, fine, "a magnitude, >= 0", remedy)
        amax = tf.constant(amax, tf.float32)
    is_logmax = isinstance(policy, scalers.LogMaxPolicy)
    if is_logmax and policy.strict and amax.dtype != tf.float32:
        raise errors.DtypeError(
            f"{owner}: expected a float32 amax, got {amax.dtype.name}; cast it, as the "
            "original cannot."
        )
    return tf.cast(has_nan, tf.bool), tf.cast(amax, tf.float32)


def step_automatic(
    policy: scalers.Automatic, state: Any, has_nan: tf.Tensor, amax: tf.Tensor
) -> Any:
    """Return the state after a step, as :func:`lockstep.scalers.step_automatic`."""
    overflow = tf.math.is_inf(amax)
    if not policy.strict:
        overflow = tf.logical_not(tf.math.is_finite(amax))
    overflow = tf.logical_or(has_nan, overflow)
    if isinstance(policy, scalers.LogMaxPolicy):
        return step_logmax(policy, state, overflow, amax)
    scale, i, last = state
    factor = tf.constant(policy.step_factor, tf.float32)
    due = tf.equal(tf.math.floormod(i - last, int(policy.step_window)), 0)
    next_scale = tf.where(due, within_bounds(policy, scale * factor), scale)
    return scalers.BackoffState(
        tf.where(overflow, within_bounds(policy, scale / factor), next_scale),
        i + 1,
        tf.where(overflow, i, last),
    )


def within_bounds(policy: scalers.Automatic, scale: tf.Tensor) -> tf.Tensor:
    """Return max(min(scale, scale_max), scale_min); if the bounds cross, scale_min."""
    return tf.maximum(tf.minimum(scale, policy.scale_max), policy.scale_min)


def step_logmax(
    policy: scalers.LogMaxPolicy,
    state: scalers.LogMaxState,
    overflow: tf.Tensor,
    amax: tf.Tensor,
) -> scalers.LogMaxState:
    """Return the state after a step; by default an amax of 0 only counts it."""
    normal = tf.where(amax < SMALLEST_NORMAL, tf.zeros_like(amax), amax)
    x = tf.math.log(normal) / tf.math.log(tf.constant(2.0))
    target = at_overflow = policy.log_max
    if policy.strict:
        with np.errstate(over="ignore"):
            target, at_overflow = 16.0, float(np.exp2(policy.log_max))
    x = tf.where(overflow, tf.constant(at_overflow, tf.float32), x)
    beta1, beta2 = policy.beta1, policy.beta2
    after = scalers.LogMaxState(
        state.loss_scale,
        state.iteration + 1,
        beta1 * state.x_hat + (1 - beta1) * x,
        beta2 * state.slow_x_hat + (1 - beta2) * x,
        beta2 * state.xsquared_hat + (1 - beta2) * (x * x),
        state.b1_correction * beta1,
        state.b2_correction * beta2,
    )
    mu = after.x_hat / (1 - after.b1_correction)
    slow = after.slow_x_hat / (1 - after.b2_correction)
    square = after.xsquared_hat / (1 - after.b2_correction)
    sigma = tf.sqrt(tf.maximum(square - slow * slow, 0.0))
    cutoff = mu + policy.overflow_std_dev * sigma
    scale = within_bounds(policy, tf.pow(2.0, target - cutoff))
    after = after._replace(loss_scale=scale)
    if policy.strict:
        return after
    alone = tf.equal(x, -math.inf)
    both = zip(state, after, strict=True)
    kept = scalers.LogMaxState(*(tf.where(alone, old, new) for old, new in both))
    return kept._replace(iteration=after.iteration)


class StaticScale:
    """A constant scale of any size, even below 1; it is always at its floor."""

    variables: Sequence[Any] = ()

    def __init__(self, number: float) -> None:
        self.number = number

    def __call__(self) -> tf.Tensor:
        """Return the number: float32, 0-d."""
        return tf.constant(self.number, tf.float32)

    def at_floor(self) -> tf.Tensor:
        """Return True."""
        return tf.constant(True)

    def move(self, finite: tf.Tensor) -> tf.Operation | None:
        """Do nothing."""
        return tf.no_op()


class AutomaticScale:
    """An automatic scaler as a loss scale; it needs each step's largest gradient."""

    def __init__(self, scaler: Any) -> None:
        self.scaler = scaler
        self.variables = list(scaler.state.values())

    def __call__(self) -> tf.Tensor:
        """Return the scale of the next step: float32, 0-d."""
        return self.scaler.loss_scale

    def at_floor(self) -> tf.Tensor:
        """Whether no overflow can make the scale smaller: bool, 0-d."""
        return self.scaler.at_floor()


# -- a step ----------------------------------------------------------------------------


class ScaledStep:
    """One step on gradients that were divided by a loss scale.

    Its methods are called in this order: :meth:`look`, :meth:`update` unless the step
    is skipped, and in eager mode :meth:`report`.

    Args:
        pairs: (gradient or None, variable) of the step.
        names: the names of all variables, as the user knows them.
        present: the n tensors to check instead of the n gradients that are not None;
            None: the gradients.
        unclipped: positions of pairs whose gradients are values to assign, such as the
            scales of float8: they are checked, but not clipped.

    Attributes:
        flags: whether each present gradient is finite: bool, [n].
        finite: whether all are, and their norm if it was computed: bool, 0-d.
        norm: the global norm of all, float32, 0-d; None: not computed.
        clip_factor: the factor of clipping, float32, 0-d; None without a norm.
        largest: the input of an automatic scaler: has_nan, bool, and the largest
            element, float32, both 0-d; None for other scales.
        applied: whether the wrapped optimizer takes its step; eager only.
        scales: the loss scale before and after the step; eager only.
    """

    flags: tf.Tensor
    finite: tf.Tensor
    norm: tf.Tensor | None = None
    clip_factor: tf.Tensor | None = None
    largest: tuple[tf.Tensor, tf.Tensor] | None = None
    applied: bool
    scales: tuple[float, float]

    def __init__(
        self,
        pairs: Pairs,
        names: list[str],
        present: Sequence[Present] | None = None,
        unclipped: Collection[int] = (),
    ) -> None:
        self.pairs = pairs
        self.names = names
        self.unclipped = unclipped
        if present is None:
            present = [gradient for gradient, _ in pairs if gradient is not None]
        self.present = present

    def look(self, clip_norm: float | None) -> None:
        """Check the gradients; compute the norm only if they are clipped.

        clip_factor = clip_norm min(1 / norm, 1 / clip_norm) above the limit, else 1.
        """
        if clip_norm is None:
            self.flags = finite_flags(self.present)
            self.finite = tf.reduce_all(self.flags)
            return
        sums = half_square_sums(self.present, tf.float32)
        self.norm = norm = tf.sqrt(tf.reduce_sum(self._clipped(sums)) * 2.0)
        # If the sum of squares is finite, every element is, so one read suffices.
        self.flags = tf.cond(
            tf.reduce_all(tf.math.is_finite(sums)),
            lambda: tf.ones_like(sums, tf.bool),
            lambda: finite_flags(self.present),
        )
        self.finite = tf.logical_and(tf.reduce_all(self.flags), tf.math.is_finite(norm))
        # At or below the limit nothing is multiplied: c (1/c) is not 1 for every c.
        factor = clip_factor(norm, clip_norm) if clip_norm < math.inf else 1.0
        self.clip_factor = tf.where(norm > clip_norm, factor, 1.0)

    def _clipped(self, sums: tf.Tensor) -> tf.Tensor:
        """Return the entries of the gradients that are clipped, of one per present."""
        if not self.unclipped:
            return sums
        present = [k for k, (g, _) in enumerate(self.pairs) if g is not None]
        clipped = [place for place, k in enumerate(present) if k not in self.unclipped]
        return tf.gather(sums, tf.constant(clipped, tf.int32))

    def look_at_largest(self, pairs: Pairs, check_grads: Callable[..., Any]) -> None:
        """Compute the input of an automatic scaler, which learns of every overflow."""
        wide = [(None if g is None else widen(g), v) for g, v in pairs]
        has_nan, largest = check_grads(wide)
        largest = tf.clip_by_value(largest, 0.0, tf.float32.max)
        self.largest = has_nan, tf.where(self.finite, largest, math.inf)

    def update(self, take: Callable[[Pairs], Any]) -> Any:
        """Call ``take`` with the pairs, whose gradients are clipped if requested."""
        if self.clip_factor is None:
            return take(self.pairs)
        gradients, variables = zip(*self.pairs, strict=True)
        clipped = scale_gradients(gradients, self.clip_factor)
        for position in self.unclipped:
            clipped[position] = gradients[position]
        return take(list(zip(clipped, variables, strict=True)))

    @property
    def names_present(self) -> list[str]:
        """The names of the variables that have a gradient."""
        return [
            n for (g, _), n in zip(self.pairs, self.names, strict=True) if g is not None
        ]

    def nonfinite(self) -> list[str]:
        """Return the names of variables with a non-finite gradient; eager only."""
        flags = np.asarray(self.flags)
        return [] if flags.all() else list(compress(self.names_present, ~flags))

    def report(self, inner: StepReport | None) -> scalers.ScaledStepReport:
        """Return the report; ``inner``: that of the wrapped optimizer; eager only."""
        finite, nonfinite = bool(self.finite), self.nonfinite()
        norm = factor = None
        if self.norm is not None and self.clip_factor is not None and not nonfinite:
            norm = float(self.norm)
            factor = float(self.clip_factor) if finite else None
        named = zip(self.pairs, self.names, strict=True)
        return scalers.report(
            inner if self.applied else None,
            self.names,
            nonfinite,
            self.scales,
            self.applied,
            norm,
            factor,
            [name for (gradient, _), name in named if gradient is None],
        )


# -- skipped steps ---------------------------------------------------------------------

UPPER = 2**32
"""The unit of the upper half; a row of skipped steps is always shorter."""


class Skips(NamedTuple):
    """The count of skipped steps of a wrapper, in a row and in all.

    Attributes:
        owner: the wrapper's name.
        variable: steps in a row + UPPER * steps before this row: int64, 0-d.
    """

    owner: str
    variable: tf.Variable

    def in_a_row(self) -> tf.Tensor:
        """Return the steps skipped in a row: int64, 0-d."""
        return tf.math.floormod(self.variable.read_value(), UPPER)

    def total(self) -> tf.Tensor:
        """Return all skipped steps: int64, 0-d."""
        return self.in_a_row() + self.variable.read_value() // UPPER

    def count(
        self, step: ScaledStep, scale: Any, at_floor: str, patience: int
    ) -> tf.Operation | None:
        """Count a step, report a stall at the floor, and return the operation."""
        if not tf.executing_eagerly():
            return self._count_in_graph(step, scale, at_floor, patience)
        # Nearly always this step and the step before it are applied.
        held = int(self.variable.read_value())
        before = held % UPPER
        skips = 0 if bool(step.finite) else before + 1
        if skips or before:
            total = held - before + (skips or before * UPPER)
            self.variable.assign(total, read_value=False)
        quiet = at_floor == "ignore" or skips < patience
        if quiet or not is_first_replica() or not scale.at_floor():
            return None
        names = ", ".join(step.nonfinite())
        text = "".join(self._sentence(str(skips), f"{float(scale()):g}", names or NORM))
        if at_floor == "raise":
            raise errors.ScaleStalledError(text)
        if skips == patience:
            errors.warn_user(text)
        return None

    def _count_in_graph(
        self, step: ScaledStep, scale: Any, at_floor: str, patience: int
    ) -> tf.Operation:
        """Count; at a stall print once, or fail at each step.

        XLA has no strings, so a graph that XLA compiles only counts.
        """
        zero, before = tf.zeros((), tf.int64), self.in_a_row()
        skips = tf.where(step.finite, zero, before + 1)
        row = tf.where(tf.equal(skips, 0), before * UPPER, skips)
        total = self.variable.read_value() - before + row
        counted = self.variable.assign(total, read_value=False)
        graph = tf.compat.v1.get_default_graph()
        quiet = at_floor == "ignore" or not is_first_replica()
        if quiet or GraphOrParentsInXlaContext(graph):
            return counted
        reached = tf.greater_equal if at_floor == "raise" else tf.equal
        with tf.control_dependencies([counted]):
            stalled = reached(skips, tf.constant(patience, tf.int64))
            stalled = tf.logical_and(stalled, scale.at_floor())

            def print_or_fail() -> tf.Operation:
                text = self._text_in_graph(step, skips, scale())
                if at_floor == "raise":
                    printed = tf.debugging.Assert(False, [text])
                else:
                    printed = tf.print(text, output_stream=sys.stderr)
                with tf.control_dependencies([printed]):
                    return tf.no_op()

            return tf.cond(stalled, print_or_fail, tf.no_op)

    def _text_in_graph(
        self, step: ScaledStep, skips: tf.Tensor, scale: tf.Tensor
    ) -> tf.Tensor:
        """Return the sentence with this step's values: string, 0-d."""
        flags = tf.logical_not(step.flags)
        names = tf.boolean_mask(tf.constant(step.names_present), flags)
        joined = tf.strings.reduce_join(names, separator=", ")
        joined = tf.where(tf.size(names) > 0, joined, NORM)
        number = tf.strings.as_string(scale, shortest=True)
        return tf.strings.join(
            self._sentence(tf.strings.as_string(skips), number, joined)
        )

    def _sentence(self, skips: Any, scale: Any, names: Any) -> list[Any]:
        """Return the parts of the sentence about a stall."""
        return [
            f"{self.owner}: expected a finite step now and then, got ",
            skips,
            " skipped in a row at loss scale ",
            scale,
            ", not finite: ",
            names,
            "; look at these gradients, or lower the floor.",
        ]


NORM = "the norm of all gradients"
