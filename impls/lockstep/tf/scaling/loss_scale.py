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
    DynamicNames,
    DynamicState,
    present_in,
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


@documented
class DynamicLossScale(DynamicNames, LossScale):
    """...

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

    def __call__(self) -> tf.Tensor:
        """Return the scale of the next step: float32, 0-d."""
        return self.current_loss_scale.read_value()

    @tf.autograph.experimental.do_not_convert
    @documented
    def update(self, grads: Any) -> Update:
        """...

        Returns:
            What moves the scale, and whether every element is finite once duplicate
            rows are summed: bool, 0-d. In a graph the first is a bool, 0-d, too:
            whether ``increment_period`` finite steps are complete. Eagerly the scale
            has moved.
        """
        needs_shape = quirks_of(self.strict).dynamic_scale_dense_shape
        present = present_in(grads, as_gradient, needs_shape)
        finite = tf.reduce_all(finite_flags(present))
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
        return self._arguments()


@documented
def get(identifier: Any, strict: bool = False) -> LossScale | None:
    if isinstance(identifier, int | float):
        return FixedLossScale(identifier, strict=strict)
    if isinstance(identifier, str) and identifier == "dynamic":
        return DynamicLossScale(strict=strict)
    if identifier is None or isinstance(identifier, LossScale):
        return identifier
    raise words.bad_identifier(identifier)


def state_variable(name: str, value: Any, dtype: Any) -> tf.Variable:
    """Make a variable that conditions can change under any behaviour of TensorFlow."""
    return tf.compat.v1.Variable(
        value, trainable=False, name=name, dtype=dtype, use_resource=True
    )
