"""Loss scales: a fixed factor, and one that adapts to overflows."""

from __future__ import annotations

import math
from typing import Any, Self

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages.scaling import loss_scale as words
from lockstep.messages.scaling import refusals
from lockstep.quirks import quirks_of
from lockstep.tf.shared.gradients import finite_flags
from lockstep.tf.shared.scaling.dynamic_scale import (
    DynamicNames,
    DynamicState,
    present_in,
    start_dynamic,
    step_dynamic,
)
from lockstep.tf.wrapper import as_gradient

__all__ = ["DynamicLossScale", "FixedLossScale", "LossScale", "get"]

Update = tuple[tf.Operation | tf.Tensor | None, Any]


class LossScale(tf.Module):
    """A factor for a loss; ``tf.train.Checkpoint`` finds its variables."""

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
        """Return the operation that updates the scale; whether to apply ``grads``."""
        raise NotImplementedError

    def move(self, finite: tf.Tensor) -> tf.Operation | None:
        """Update the scale after a step; ``finite``: bool, 0-d; return the operation.

        The base class does nothing, because the original updates only its own dynamic
        scale. A subclass may override this method.
        """
        return tf.no_op()

    def _add_weight(
        self, name: str, initial_value: Any, dtype: Any = None
    ) -> tf.Variable:
        """Create a variable for a user's own scale, under the original's method name.

        Checkpoints of objects store it as ``name``.
        """
        variable = state_variable(name, initial_value, dtype)
        self._track_trackable(variable, name)
        return variable

    def at_floor(self) -> tf.Tensor:
        """Whether no overflow can make the scale smaller: bool, 0-d."""
        return self() <= self.least

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Create a loss scale from the result of ``get_config``."""
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
            The operation that updates the scale, and whether every element is finite
            after duplicate rows are summed: bool, 0-d. In a graph the first is a bool,
            0-d, too: whether ``increment_period`` finite steps are complete. In eager
            mode the scale is already updated.
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
        """Update the scale after a step, finite or not; return the operation."""
        state = [self.current_loss_scale, self.good_steps]
        if self._policy.is_patient:
            state += [self.overflows, self.steps]
        before = DynamicState(*(variable.read_value() for variable in state))
        after = step_dynamic(self._policy, before, finite)
        # Without patience only the first two have values.
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
    """Create a variable that conditions can change, with any TensorFlow behaviour."""
    return tf.compat.v1.Variable(
        value, trainable=False, name=name, dtype=dtype, use_resource=True
    )
