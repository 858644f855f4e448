"""Loss scales: a fixed factor, and one that follows what overflows."""

from __future__ import annotations

import math
from typing import Any, Self

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages.scaling import loss_scale as words
from lockstep.messages.scaling import refusals
from lockstep.quirks import quirks_of
from lockstep.tf.base.pairs import as_gradient
from lockstep.tf.shared.scaling.dynamic_scale import (
    DynamicState,
    check_present,
    start_dynamic,
    step_dynamic,
)
from lockstep.tf.shared.tensors.finite import finite_flags

__all__ = ["DynamicLossScale", "FixedLossScale", "LossScale", "get"]

Update = tuple[tf.Operation | tf.Tensor | None, Any]


class LossScale(tf.Module):
    """What multiplies a loss; its variables are found by ``tf.train.Checkpoint``."""

    strict = False
    good_steps: Any = 0
    least: float = math.inf

    def __init__(self) -> None:
        if type(self) is LossScale:
            raise refusals.ABSTRACT_SCALE.error()
        super().__init__()

    def __call__(self) -> tf.Tensor:
        """Return the scale of the next step: float32, 0-d."""
        raise NotImplementedError

    def update(self, grads: Any) -> Update:
        """Return the operation that moves the scale, and whether to apply ``grads``."""
        raise NotImplementedError

    def move(self, finite: tf.Tensor) -> tf.Operation | None:
        """Take note of one step, finite or not: bool, 0-d; return the operation.

        A scale stays as it is unless its class says otherwise, as in the original,
        which moved nothing but its own dynamic scale.
        """
        return tf.no_op()

    def _add_weight(
        self, name: str, initial_value: Any, dtype: Any = None
    ) -> tf.Variable:
        """Make a variable of a scale of a user's own, under the original's name.

        Checkpoints of objects find it as ``name``.
        """
        variable = state_variable(name, initial_value, dtype)
        self._track_trackable(variable, name)
        return variable

    def at_floor(self) -> tf.Tensor:
        """Say whether no overflow can make the scale smaller: bool, 0-d."""
        return self() <= self.least

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Make a loss scale from what ``get_config`` returned."""
        return cls(**words.checked_config(cls, config))

    def __repr__(self) -> str:
        return words.shown(type(self).__name__, self.get_config())


@documented
class FixedLossScale(LossScale):
    """A loss scale that never moves.

    ...

    Example:
        >>> scale = FixedLossScale(8)
        >>> scale, float(scale())
        (FixedLossScale(8.0), 8.0)
    """

    def __init__(self, loss_scale_value: float, strict: bool = False) -> None:
        unchecked = quirks_of(strict).arguments_unchecked
        self._value = words.fixed_value(loss_scale_value, unchecked)
        super().__init__()
        self.strict = strict

    @property
    def loss_scale_value(self) -> float:
        """The factor."""
        return self._value

    def __call__(self) -> tf.Tensor:
        """Return the factor: float32, 0-d."""
        return tf.constant(self._value, tf.float32)

    @property
    def least(self) -> float:  # type: ignore[override]
        """The factor."""
        return self._value

    def update(self, grads: Any) -> Update:
        """Do nothing: (no operation, True)."""
        return tf.no_op(), True

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's argument."""
        return {"loss_scale_value": self._value}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._value})"


def of_policy(name: str, doc: str) -> Any:
    """Return a property that reads a part of the policy."""
    return property(lambda scale: getattr(scale._policy, name), doc=doc)


@documented
class DynamicLossScale(words.OldNames, LossScale):
    """A loss scale that grows while gradients are finite and shrinks when they are not.

    ...

    Example:
        >>> scale = DynamicLossScale(8.0, increment_period=1)
        >>> _, finite = scale.update([tf.constant([1.0, float("inf")]), None])
        >>> bool(finite), float(scale())
        (False, 4.0)
    """

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
        self._policy = words.dynamic_policy(
            initial_loss_scale,
            increment_period,
            multiplier,
            floor,
            ceiling,
            strict,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            hysteresis=hysteresis,
            tolerance=tolerance,
        )
        super().__init__()
        self.strict = strict
        first = start_dynamic(self._policy)
        with tf.init_scope():
            self.current_loss_scale = state_variable(
                "current_loss_scale", first.loss_scale, tf.float32
            )
            self.good_steps = state_variable("good_steps", first.good_steps, tf.int64)
            if self._policy.is_patient:
                self.overflows = state_variable("overflows", first.overflows, tf.int64)
                self.steps = state_variable("steps", first.steps, tf.int64)

    initial_loss_scale = of_policy("initial_loss_scale", "The first scale.")
    increment_period = of_policy("increment_period", "The steps from growth to growth.")
    multiplier = of_policy("multiplier", "What scales are multiplied or divided by.")
    floor = of_policy("floor", "The least scale that an overflow leads to.")
    ceiling = of_policy("ceiling", "The greatest scale that growth leads to.")
    growth_factor = of_policy("growth", "What growth multiplies by.")
    backoff_factor = of_policy("backoff", "What lowering multiplies by.")
    hysteresis = of_policy("hysteresis", "The overflows until the scale is lowered.")
    tolerance = of_policy("tolerance", "The share of steps that may overflow.")
    least = floor

    def __call__(self) -> tf.Tensor:
        """Return the scale of the next step: float32, 0-d."""
        return self.current_loss_scale.read_value()

    @tf.autograph.experimental.do_not_convert
    def update(self, grads: Any) -> Update:
        """Move the scale by one step.

        Args:
            grads: any nest of tensors, ``tf.IndexedSlices`` and None.

        Returns:
            What moves the scale, and whether every element is finite once duplicate
            rows are summed: bool, 0-d. In a graph the first is a bool, 0-d, too:
            whether ``increment_period`` finite steps are complete. Eagerly the scale
            has moved.

        Raises:
            DtypeError: a TypeError; a gradient of integers.
            UnsupportedError: a ValueError; strict, a sparse one without dense_shape.
        """
        needs_shape = quirks_of(self.strict).dynamic_scale_dense_shape
        finite = tf.reduce_all(finite_flags(present_in(grads, needs_shape)))
        if tf.executing_eagerly():
            return self.move(finite), finite
        complete = self.good_steps.read_value() + 1 >= self.increment_period
        complete = tf.logical_and(finite, complete)
        with tf.control_dependencies([complete]):
            moved = self.move(finite)
        with tf.control_dependencies([moved]):
            return tf.identity(complete), finite

    def move(self, finite: tf.Tensor) -> tf.Operation | None:
        """Move the scale by one step, finite or not; return the operation."""
        state = [self.current_loss_scale, self.good_steps]
        if self._policy.is_patient:
            state += [self.overflows, self.steps]
        before = DynamicState(*(variable.read_value() for variable in state))
        after = step_dynamic(self._policy, before, finite)
        # Without patience there are values for the first two only.
        pairs = zip(state, after, strict=False)
        return tf.group(*(v.assign(value, read_value=False) for v, value in pairs))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        without_options = quirks_of(self.strict).dynamic_scale_floor
        return words.dynamic_config(self._policy, without_options)

    @property
    def _current_loss_scale(self) -> tf.Variable:
        return self.current_loss_scale

    @property
    def _num_good_steps(self) -> tf.Variable:
        return self.good_steps

    def __repr__(self) -> str:
        """Return the arguments; eagerly also the scale and the good steps."""
        name, config = type(self).__name__, self.get_config()
        if not tf.executing_eagerly():
            return words.shown(name, config)
        scale, good_steps = self.current_loss_scale.numpy(), self.good_steps.numpy()
        return words.shown(
            name, config, current_loss_scale=scale, num_good_steps=good_steps
        )


def get(identifier: Any, strict: bool = False) -> LossScale | None:
    """Return the loss scale that ``identifier`` stands for.

    A number makes a :class:`FixedLossScale`, "dynamic" a :class:`DynamicLossScale`; a
    loss scale and None stay what they are.

    Raises:
        UnknownNameError: a ValueError; anything else.
    """
    if isinstance(identifier, int | float):
        return FixedLossScale(identifier, strict=strict)
    if isinstance(identifier, str) and identifier == "dynamic":
        return DynamicLossScale(strict=strict)
    if identifier is None or isinstance(identifier, LossScale):
        return identifier
    raise words.bad_identifier(identifier)


def present_in(grads: Any, needs_shape: bool) -> list[tf.Tensor | tf.IndexedSlices]:
    """Return the gradients of a nest that are there, checked."""
    owner = "DynamicLossScale"
    flat = [as_gradient(g, "a gradient", owner) for g in tf.nest.flatten(grads)]
    present = [gradient for gradient in flat if gradient is not None]
    check_present(present, needs_shape)
    return present


def state_variable(name: str, value: Any, dtype: Any) -> tf.Variable:
    """Make a variable that conditions can change under any behaviour of TensorFlow."""
    return tf.compat.v1.Variable(
        value, trainable=False, name=name, dtype=dtype, use_resource=True
    )
