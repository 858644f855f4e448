"""Loss scales: fixed, dynamic, and automatic ones that follow the largest gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import tensorflow as tf

from lockstep import scalers
from lockstep.tf.shared import scaling
from lockstep.tf.shared.gradients import finite_flags
from lockstep.tf.wrapper import as_gradient, become_strict, listed_pairs

Update = tuple[tf.Operation | tf.Tensor | None, Any]


class LossScale(tf.Module):
    """A factor for a loss; ``tf.train.Checkpoint`` finds its variables.

    A loss scale of your own derives from it and has ``__call__``, ``update`` and
    ``get_config``.
    """

    good_steps: Any = 0

    def __call__(self) -> tf.Tensor:
        """Return the scale of the next step: float32, 0-d."""
        raise NotImplementedError

    def update(self, grads: Any) -> Update:
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
        return cls(**scaling.checked_config(cls, config))

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value}" for key, value in self._shown().items())
        return f"{type(self).__name__}({shown})"

    def _shown(self) -> dict[str, Any]:
        """Return what a repr shows."""
        return self.get_config()


def state_variable(name: str, value: Any, dtype: Any) -> tf.Variable:
    """Create a variable that conditions can change, with any TensorFlow behaviour."""
    with tf.init_scope():
        return tf.compat.v1.Variable(
            value, trainable=False, name=name, dtype=dtype, use_resource=True
        )


class FixedLossScale(LossScale):
    """A loss scale that never moves.

    Args:
        loss_scale_value: the factor, a number >= 1 that float32 can hold.
        strict: also accept NaN, infinity and bools; an optimizer with this scale
            applies gradients that are not finite.

    Raises:
        OutOfRangeError: a ValueError; no number, or one that is out of range.

    Origin: ``tf.train.experimental.FixedLossScale``, TensorFlow 1.15.

    Example:
        >>> scale = FixedLossScale(8)
        >>> scale, float(scale())
        (FixedLossScale(8.0), 8.0)
    """

    def __init__(self, loss_scale_value: float, strict: bool = False) -> None:
        if strict:
            become_strict(self, loss_scale_value)
            return
        super().__init__()
        self._value = scaling.fixed_value(loss_scale_value)

    @property
    def loss_scale_value(self) -> float:
        """The factor."""
        return self._value

    def __call__(self) -> tf.Tensor:
        """Return the factor: float32, 0-d."""
        return tf.constant(self.loss_scale_value, tf.float32)

    def update(self, grads: Any) -> Update:
        """Do nothing: (no operation, True)."""
        return tf.no_op(), True

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's argument."""
        return {"loss_scale_value": self.loss_scale_value}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.loss_scale_value})"


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
            scale if that is smaller. Strict: always 1.
        ceiling: the largest scale, not below the initial one; None: float32's maximum.
        growth_factor: the factor of growth, > 1; None: ``multiplier``.
        backoff_factor: the factor at an overflow, in (0, 1); None: divide by
            ``multiplier``.
        hysteresis: overflows since the last growth until the scale is lowered, >= 1.
        tolerance: the share of steps since the scale last changed that may overflow, in
            [0, 1); not together with ``hysteresis``.
        strict: as the original: nothing is checked, an overflow raises a scale below 1
            to 1, a sparse gradient needs a dense_shape; the options after
            ``multiplier`` are refused with a TypeError.

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
        strict: bool = False,
    ) -> None:
        options = {
            "growth_factor": growth_factor,
            "backoff_factor": backoff_factor,
            "hysteresis": hysteresis,
            "tolerance": tolerance,
        }
        numbers = initial_loss_scale, increment_period, multiplier
        if strict:
            bounds = {"floor": floor, "ceiling": ceiling}
            defaults = scalers.DynamicPolicy._field_defaults
            chosen = {k: v for k, v in options.items() if v != defaults[k]}
            chosen |= {k: v for k, v in bounds.items() if v is not None}
            become_strict(self, *numbers, **chosen)
            return
        self._set_up(scalers.dynamic_policy(*numbers, floor, ceiling, **options))

    def _set_up(self, policy: scalers.DynamicPolicy) -> None:
        super().__init__()
        self._policy = policy
        first = policy.initial_loss_scale
        self.current_loss_scale = state_variable(
            "current_loss_scale", first, tf.float32
        )
        self.good_steps = state_variable("good_steps", 0, tf.int64)
        if policy.is_patient:
            self.overflows = state_variable("overflows", 0, tf.int64)
            self.steps = state_variable("steps", 0, tf.int64)

    @property
    def backoff_factor(self) -> float:
        """What lowering multiplies by; without a factor, 1 / multiplier."""
        return self._policy.backoff_factor or 1.0 / self._policy.multiplier

    def __call__(self) -> tf.Tensor:
        """Return the scale of the next step: float32, 0-d."""
        return self.current_loss_scale.read_value()

    @tf.autograph.experimental.do_not_convert
    def update(self, grads: Any) -> Update:
        """Move the scale by one step.

        Args:
            grads: any nest of tensors, ``tf.IndexedSlices`` and None.

        Returns:
            The operation that updates the scale, and whether every element is finite
            after duplicate rows are summed: bool, 0-d. In a graph the first is a bool,
            0-d, too: whether ``increment_period`` finite steps are complete. In eager
            mode the scale is already updated.

        Raises:
            DtypeError: a TypeError; a gradient of integers.
        """
        owner = "DynamicLossScale"
        flat = [as_gradient(g, "a gradient", owner) for g in tf.nest.flatten(grads)]
        finite = tf.reduce_all(finite_flags(scaling.require_floats(flat)))
        if tf.executing_eagerly():
            return self.move(finite), finite
        complete = self.good_steps.read_value() + 1 >= self.increment_period
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
        state = [self.current_loss_scale, self.good_steps]
        if self._policy.is_patient:
            state += [self.overflows, self.steps]
        before = [variable.read_value() for variable in state]
        after = scaling.step_dynamic(self._policy, before, finite)
        pairs = zip(state, after, strict=True)
        return tf.group(*(v.assign(value, read_value=False) for v, value in pairs))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments that differ from their defaults."""
        return scaling.dynamic_config(self._policy)

    def _shown(self) -> dict[str, Any]:
        """Return the arguments, in eager mode after the scale and the good steps."""
        if not tf.executing_eagerly():
            return self.get_config()
        return {
            "current_loss_scale": self.current_loss_scale.numpy(),
            "num_good_steps": self.good_steps.numpy(),
            **self.get_config(),
        }


def get(identifier: Any, strict: bool = False) -> LossScale | None:
    """Return the loss scale for ``identifier``.

    A number gives a :class:`FixedLossScale`, "dynamic" a :class:`DynamicLossScale`. A
    loss scale and None are returned unchanged.

    Args:
        identifier: a number, "dynamic", a loss scale or None.
        strict: return a strict scale for a number or "dynamic".

    Raises:
        UnknownNameError: a ValueError; anything else.
    """
    if isinstance(identifier, int | float):
        return FixedLossScale(identifier, strict=strict)
    if isinstance(identifier, str) and identifier == "dynamic":
        return DynamicLossScale(strict=strict)
    if identifier is None or isinstance(identifier, LossScale):
        return identifier
    raise scaling.bad_identifier(identifier)


class AutomaticLossScaler(tf.Module):
    """A loss scale that is updated with the largest gradient of every step.

    Backoff starts at scale_max; an overflow divides by step_factor, and every
    step_window steps after the last one the scale is multiplied by it. LogMax follows
    the mean and the deviation of log2(amax) so that overflows stay rare.

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
        first = scalers.start_automatic(policy)
        self._kind = type(first)
        self._state = {
            name: state_variable(name, value, dtype_of(value))
            for name, value in first._asdict().items()
        }

    @property
    def loss_scale(self) -> tf.Tensor:
        """The scale of the next step: float32, 0-d."""
        return self._state["loss_scale"].read_value()

    @property
    def state(self) -> dict[str, tf.Variable]:
        """The variables that an update changes, by name."""
        return dict(self._state)

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
        has_nan, amax = scaling.as_update(self.policy, has_nan, amax)
        before = self._kind(*(v.read_value() for v in self._state.values()))
        after = scaling.step_automatic(self.policy, before, has_nan, amax)
        pairs = zip(self._state.values(), after, strict=True)
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
        return scaling.find_largest(as_gradient(g, v, owner) for g, v in pairs)


def dtype_of(number: Any) -> tf.DType:
    """Return the dtype of a variable for an entry of a scaler's state."""
    return tf.int64 if isinstance(number, int) else tf.float32
