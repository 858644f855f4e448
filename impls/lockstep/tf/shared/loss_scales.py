"""Loss scales of TensorFlow and Keras: modules with variables of their backend.

Their arithmetic is that of :mod:`lockstep.scalers`, on tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from lockstep import errors, scalers
from lockstep.checks import HELD, is_scale, number_of, require
from lockstep.tf.shared.gradients import (
    as_gradient,
    finite_flags,
    listed_pairs,
    require_floats,
)

SMALLEST_NORMAL = float(np.finfo(np.float32).smallest_normal)

# -- arguments -------------------------------------------------------------------------


def scale_for(
    identifier: Any, fixed: Callable[[Any], Any], dynamic: Callable[[], Any]
) -> LossScale:
    """Return the loss scale for a number, "dynamic" or a loss scale."""
    if isinstance(identifier, Real):
        return fixed(identifier)
    if isinstance(identifier, str) and identifier == "dynamic":
        return dynamic()
    if isinstance(identifier, LossScale):
        return identifier
    kind = errors.UnknownNameError
    if identifier is None:
        kind = errors.MissingLossScaleError
    raise kind(
        "loss_scale: expected a number, 'dynamic' or a loss scale, got "
        f"{identifier!r:.80}; for one that follows the gradients give 'dynamic'."
    )


def scale_of(argument: Any, dynamic: Callable[[], Any]) -> tuple[Any, Any]:
    """Return the scale that users of masters know, and it as a loss scale."""
    if argument is None or isinstance(argument, Real):
        number = 1.0 if argument is None else number_of(argument)
        owner = "MixedPrecisionOptimizerWrapper"
        require(owner, "loss_scale", argument, is_scale(number), HELD)
        scale = FixedLossScale(1.0)
        scale._value = number  # It may be below 1.
        return number, scale
    if not isinstance(argument, AutomaticLossScaler):
        argument = scale_for(argument, FixedLossScale, dynamic)
    return argument, argument


# -- loss scales -----------------------------------------------------------------------


def state_variable(name: str, value: Any, dtype: Any) -> tf.Variable:
    """Create a variable that conditions can change, with any TensorFlow behaviour."""
    with tf.init_scope():
        return tf.compat.v1.Variable(
            value, trainable=False, name=name, dtype=dtype, use_resource=True
        )


class LossScale(tf.Module):
    """A factor for a loss; ``tf.train.Checkpoint`` finds its variables.

    A loss scale of your own derives from it and has ``__call__``, ``update`` and
    ``get_config``.
    """

    good_steps: Any = 0

    def __call__(self) -> tf.Tensor:
        """Return the scale of the next step: float32, 0-d."""
        raise NotImplementedError

    def update(self, grads: Any) -> Any:
        """Return the operation that updates the scale; whether to apply ``grads``."""
        raise NotImplementedError

    def move(self, finite: tf.Tensor) -> tf.Operation | None:
        """Update the scale after a step; ``finite``: bool, 0-d; return the operation.

        The base class does nothing, because the original updates only its own dynamic
        scale.
        """
        return tf.no_op()

    def _add_weight(
        self, name: str, initial_value: Any, dtype: Any = None
    ) -> tf.Variable:
        """Create a variable of your own scale; checkpoints store it as ``name``."""
        variable = state_variable(name, initial_value, dtype)
        self._track_trackable(variable, name)
        return variable

    def at_floor(self) -> tf.Tensor:
        """Whether no overflow can make the scale smaller: bool, 0-d."""
        return tf.constant(True)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Create a loss scale from the result of ``get_config``."""
        return cls(**config)

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value}" for key, value in self._shown().items())
        return f"{type(self).__name__}({shown})"

    def _shown(self) -> dict[str, Any]:
        """Return what a repr shows."""
        return self.get_config()


class FixedLossScale(LossScale):
    """A loss scale that never moves.

    Args:
        loss_scale_value: the factor, a number >= 1 that float32 can hold.

    Raises:
        OutOfRangeError: a ValueError; no number, or one that is out of range.

    Origin: ``tf.train.experimental.FixedLossScale``, TensorFlow 1.15.

    Example:
        >>> scale = FixedLossScale(8)
        >>> scale, float(scale())
        (FixedLossScale(8.0), 8.0)
    """

    def __init__(self, loss_scale_value: float) -> None:
        super().__init__()
        number = number_of(loss_scale_value)
        is_number = isinstance(loss_scale_value, Real)
        fine = is_number and number >= 1 and is_scale(number)
        expected = "a number >= 1, finite in float32"
        require("FixedLossScale", "loss_scale_value", loss_scale_value, fine, expected)
        self._value = number

    @property
    def loss_scale_value(self) -> float:
        """The factor."""
        return self._value

    def __call__(self) -> tf.Tensor:
        """Return the factor: float32, 0-d."""
        return tf.constant(self._value, tf.float32)

    def update(self, grads: Any) -> tuple[tf.Operation | None, bool]:
        """Do nothing: (no operation, True)."""
        return tf.no_op(), True

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's argument."""
        return {"loss_scale_value": self._value}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._value})"


def _of_policy(name: str, doc: str) -> Any:
    """Return a property that reads an argument of a dynamic scale."""
    return property(lambda scale: getattr(scale._policy, name), doc=doc)


class DynamicLossScale(LossScale):
    """A loss scale that grows while gradients are finite and shrinks when they are not.

    After a finite step, good_steps += 1. When it reaches ``increment_period``,
    scale = min(scale growth, ceiling), unless the product is not finite, and
    good_steps = overflows = steps = 0. After an overflow, good_steps = 0 and
    overflows += 1. If overflows >= hysteresis and overflows / steps >= tolerance, this
    step included (by default, on each overflow), scale = max(scale / multiplier,
    floor), overflows = hysteresis - 1 and steps = 0.

    Args:
        initial_loss_scale: the first scale, > 0.
        increment_period: steps from one growth to the next, >= 1.
        multiplier: the factor of growth, > 1; an overflow divides by it.
        floor: the smallest scale, not above the initial one; None: 1, or the initial
            scale if that is smaller.
        ceiling: the largest scale, not below the initial one; None: float32's maximum.
        growth_factor: the factor of growth, > 1; None: ``multiplier``.
        backoff_factor: the factor at an overflow, in (0, 1); None: divide by
            ``multiplier``.
        hysteresis: overflows since the last growth until the scale is lowered, >= 1.
        tolerance: the share of steps since the scale last changed that may overflow, in
            [0, 1); not together with ``hysteresis``.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: ``tf.train.experimental.DynamicLossScale``, TensorFlow 1.15; hysteresis as
    in Megatron-LM, tolerance as in fairseq.

    Example:
        >>> scale = DynamicLossScale(8.0, increment_period=1)
        >>> _, finite = scale.update([tf.constant([1.0, float("inf")]), None])
        >>> bool(finite), float(scale())
        (False, 4.0)
    """

    initial_loss_scale = _of_policy("initial_loss_scale", "The first scale.")
    increment_period = _of_policy("increment_period", "Steps from growth to growth.")
    multiplier = _of_policy("multiplier", "What scales are multiplied or divided by.")
    floor = _of_policy("floor", "The least scale that an overflow leads to.")
    ceiling = _of_policy("ceiling", "The greatest scale that growth leads to.")
    growth_factor = _of_policy("growth", "What growth multiplies by.")
    hysteresis = _of_policy("hysteresis", "The overflows until the scale is lowered.")
    tolerance = _of_policy("tolerance", "The share of steps that may overflow.")

    def __init__(
        self,
        initial_loss_scale: float = 2**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
        *,
        floor: float | None = None,
        ceiling: float | None = None,
        growth_factor: float | None = None,
        backoff_factor: float | None = None,
        hysteresis: int = 1,
        tolerance: float = 0.0,
    ) -> None:
        policy = scalers.dynamic_policy(
            initial_loss_scale,
            increment_period,
            multiplier,
            floor,
            ceiling,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            hysteresis=hysteresis,
            tolerance=tolerance,
        )
        self._start(policy)

    def _start(self, policy: scalers.DynamicPolicy) -> None:
        """Create the state before the first step."""
        super().__init__()
        self._policy = policy
        first = policy.initial_loss_scale
        self.current_loss_scale = state_variable("current_loss_scale", first, "float32")
        self.good_steps = state_variable("good_steps", 0, "int64")
        if policy.is_patient:
            self.overflows = state_variable("overflows", 0, "int64")
            self.steps = state_variable("steps", 0, "int64")

    @property
    def backoff_factor(self) -> float:
        """What lowering multiplies by; without a factor, 1 / multiplier."""
        return self._policy.backoff_factor or 1.0 / self._policy.multiplier

    @property
    def variables(self) -> list[Any]:
        """The scale and the good steps; with patience, its two counts too."""
        state = [self.current_loss_scale, self.good_steps]
        if self._policy.is_patient:
            state += [self.overflows, self.steps]
        return state

    def __call__(self) -> tf.Tensor:
        """Return the scale of the next step: float32, 0-d."""
        return self.current_loss_scale.read_value()

    @tf.autograph.experimental.do_not_convert
    def update(self, grads: Any) -> tuple[tf.Tensor | None, tf.Tensor]:
        """Move the scale by one step.

        Args:
            grads: any nest of tensors, ``tf.IndexedSlices`` and None.

        Returns:
            The operation that updates the scale, and whether every element is finite
            after duplicate rows are summed: bool, 0-d. In a graph the first is a bool,
            0-d, too: whether ``increment_period`` finite steps are complete. In eager
            mode it is None, and the scale is already updated.

        Raises:
            DtypeError: a TypeError; a gradient of integers.
        """
        owner = "DynamicLossScale"
        flat = [as_gradient(g, "a gradient", owner) for g in tf.nest.flatten(grads)]
        finite = tf.reduce_all(finite_flags(require_floats(owner, flat)))
        if tf.executing_eagerly():
            return self.move(finite), finite
        good_steps = self.good_steps.read_value()
        complete = good_steps + 1 >= self.increment_period
        complete = tf.logical_and(finite, complete)
        with tf.control_dependencies([complete]):
            moved = self.move(finite)
        with tf.control_dependencies([moved]):
            return tf.identity(complete), finite

    def at_floor(self) -> tf.Tensor:
        """Whether no overflow can make the scale smaller: bool, 0-d."""
        return self() <= self.floor

    def move(self, finite: tf.Tensor) -> tf.Operation | None:
        """Update the scale after a step, finite or not; return the operation."""
        state = self.variables
        before = [variable.read_value() for variable in state]
        after = step_dynamic(self._policy, before, finite)
        *others, last = zip(state, after, strict=True)
        done = [variable.assign(value, read_value=False) for variable, value in others]
        with tf.control_dependencies(done):  # Fewer operations than a group of all.
            return last[0].assign(last[1], read_value=False)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments that differ from their defaults."""
        defaults = dict(self._policy._field_defaults)
        defaults["floor"] = min(1.0, self._policy.initial_loss_scale)
        fields = self._policy._asdict().items()
        return {k: v for k, v in fields if k not in defaults or v != defaults[k]}

    def _shown(self) -> dict[str, Any]:
        """Return the arguments, in eager mode after the scale and the good steps."""
        state = {}
        if tf.executing_eagerly():
            state["current_loss_scale"] = self.current_loss_scale.numpy()
            state["num_good_steps"] = self.good_steps.numpy()
        return {**state, **self.get_config()}


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


class AutomaticLossScaler(tf.Module):
    """A loss scale that is updated with the largest gradient of every step.

    Backoff starts at scale_max; an overflow divides by step_factor, and every
    step_window steps after the last one the scale is multiplied by it. LogMax follows
    the mean and the deviation of log2(amax) so that overflows stay rare.

    State: ``tf.train.Checkpoint`` saves it; ``get_config`` has the arguments only.

    Args:
        algorithm: "Backoff" or "LogMax"; case and outer spaces do not matter.
        params: the algorithm's parameters by name. Backoff: scale_min=1.,
            scale_max=16384., step_factor=2., step_window=2000 (steps); LogMax:
            scale_min=1., scale_max=16384., log_max=16., beta1=0.99, beta2=0.999,
            overflow_std_dev=3.09.
        strict: as in OpenSeq2Seq, quirks included: floats must be float, bounds are not
            checked, a NaN amax is no overflow; LogMax counts an overflow as 2^log_max,
            has the target 2^16 whatever ``log_max`` is, and after one amax of 0 its
            scale stays NaN.

    Raises:
        UnknownNameError: a ValueError; an unknown algorithm or parameter.
        OutOfRangeError: a ValueError; a parameter of another type or out of its range.

    Origin: OpenSeq2Seq (8681d381ed40), ``AutomaticLossScaler``; B. Ginsburg et al.

    Example:
        >>> scaler = AutomaticLossScaler("Backoff", {"scale_max": 64.0})
        >>> int(scaler.update_op(False, float("inf"))), float(scaler.loss_scale)
        (1, 32.0)
    """

    SUPPORTED_ALGOS: ClassVar[list[str]] = ["backoff", "logmax"]

    def __init__(
        self,
        algorithm: str = "Backoff",
        params: Mapping[str, Any] | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__()
        name, policy = scalers.automatic_policy(algorithm, params, strict)
        self.algorithm, self.policy, self.strict = name, policy, strict
        self._params = dict(params or {})
        first = scalers.start_automatic(policy)
        self._kind = type(first)
        self._state = {
            name: state_variable(
                name, value, "int64" if isinstance(value, int) else "float32"
            )
            for name, value in first._asdict().items()
        }

    def __repr__(self) -> str:
        shown = f", {self._params}" if self._params else ""
        return f"{type(self).__name__}({self.algorithm!r}{shown})"

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = {"algorithm": self.algorithm, "params": dict(self._params)}
        return config | ({"strict": True} if self.strict else {})

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Create a scaler with initial state from the result of ``get_config``."""
        return cls(**config)

    @property
    def loss_scale(self) -> tf.Tensor:
        """The scale of the next step: float32, 0-d."""
        return self._state["loss_scale"].read_value()

    def __call__(self) -> tf.Tensor:
        """Return the scale of the next step, as other loss scales: float32, 0-d."""
        return self.loss_scale

    @property
    def state(self) -> dict[str, Any]:
        """The variables that an update changes, by name."""
        return dict(self._state)

    @property
    def variables(self) -> list[Any]:
        """The variables that an update changes."""
        return list(self._state.values())

    def at_floor(self) -> tf.Tensor:
        """Whether no overflow can make the scale smaller: bool, 0-d."""
        return self.loss_scale <= self.policy.scale_min

    @tf.autograph.experimental.do_not_convert
    def update_op(self, has_nan: Any, amax: Any) -> tf.Tensor:
        """Move the scale by one step.

        Args:
            has_nan: whether any gradient has a NaN: bool, 0-d.
            amax: the largest absolute value: float32, 0-d.

        Returns:
            The number of updates made, this one included: int64, 0-d.

        Raises:
            DtypeError: a TypeError; strict LogMax, an ``amax`` that is not float32.
        """
        owner, policy = "AutomaticLossScaler.update_op", self.policy
        if isinstance(amax, Real) or not hasattr(amax, "dtype"):
            amax = tf.constant(amax, tf.float32)
        is_logmax = isinstance(policy, scalers.LogMaxPolicy)
        if is_logmax and policy.strict and amax.dtype != tf.float32:
            raise errors.DtypeError(
                f"{owner}: expected a float32 amax, got {amax.dtype.name}; cast it, as "
                "the original cannot."
            )
        has_nan, amax = tf.cast(has_nan, tf.bool), tf.cast(amax, tf.float32)
        before = self._kind(*(variable.read_value() for variable in self.variables))
        after = step_automatic(policy, before, has_nan, amax)
        pairs = zip(self.variables, after, strict=True)
        moved = [variable.assign(value, read_value=False) for variable, value in pairs]
        done = [] if tf.executing_eagerly() else moved
        with tf.control_dependencies(done):
            return tf.identity(after.iteration)

    @staticmethod
    def check_grads(
        grads_and_vars: Iterable[tuple[Any, Any]],
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return whether any gradient has a NaN, and the largest absolute value.

        Duplicate rows of sparse gradients are not summed. The maximum ignores NaN;
        without any element it is -inf.

        Raises:
            DtypeError: a TypeError; the gradients have several dtypes.
        """
        owner = "AutomaticLossScaler.check_grads"
        pairs = listed_pairs(grads_and_vars, owner)
        gradients = [as_gradient(gradient, v, owner) for gradient, v in pairs]
        values = [getattr(g, "values", g) for g in gradients if g is not None]
        dtypes = sorted({value.dtype.name for value in values})
        fine = all("float" in dtype for dtype in dtypes)
        if len(dtypes) > 1 or not fine:
            raise errors.DtypeError(
                f"{owner}: expected floating-point gradients of one "
                f"dtype, got {' and '.join(dtypes)}; cast them to one dtype first."
            )
        if not values:
            return tf.constant(False), tf.constant(-math.inf)
        has_nan = tf.stack([tf.reduce_any(tf.math.is_nan(value)) for value in values])
        nothing = tf.constant(-math.inf, values[0].dtype)
        known = [tf.where(tf.math.is_nan(v), nothing, tf.abs(v)) for v in values]
        largest = tf.stack([tf.reduce_max(value) for value in known])
        return tf.reduce_any(has_nan), tf.reduce_max(largest)


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
