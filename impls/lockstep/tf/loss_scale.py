"""Loss scales: a fixed factor, and one that follows what overflows."""

from __future__ import annotations

from typing import Any, Self

import tensorflow as tf

from lockstep.spec import loss_scaling as words
from lockstep.tf.core.dynamic_scale import (
    DynamicState,
    finite_flags,
    start_dynamic,
    step_dynamic,
)
from lockstep.tf.pairs import Gradient, as_gradient

__all__ = ["DynamicLossScale", "FixedLossScale", "LossScale", "get", "present_in"]

Update = tuple[tf.Operation | None, Any]


class LossScale(tf.Module):
    """What multiplies a loss; its variables are found by ``tf.train.Checkpoint``."""

    strict = False
    good_steps: Any = 0

    def __call__(self) -> tf.Tensor:
        """Return the scale of the next step: float32, 0-d."""
        raise NotImplementedError

    def update(self, grads: Any) -> Update:
        """Return the operation that moves the scale, and whether to apply ``grads``."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Make a loss scale from what ``get_config`` returned."""
        return cls(**config)

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value}" for key, value in self.get_config().items())
        return f"{type(self).__name__}({shown})"


class FixedLossScale(LossScale):
    """A loss scale that never moves.

    Args:
        loss_scale_value: the factor, an int or float >= 1; NaN and infinity pass.
        strict: an optimizer that scales by it applies what is not finite.

    Raises:
        OutOfRangeError: a ValueError; no number, or one that is out of range.

    Origin: ``tf.train.experimental.FixedLossScale``, TensorFlow 1.15.

    Example:
        >>> scale = FixedLossScale(8)
        >>> scale, float(scale())
        (FixedLossScale(8.0), 8.0)
    """

    def __init__(self, loss_scale_value: float, strict: bool = False) -> None:
        self._value = words.fixed_value(loss_scale_value)
        super().__init__()
        self.strict = strict

    @property
    def loss_scale_value(self) -> float:
        """The factor."""
        return self._value

    def __call__(self) -> tf.Tensor:
        """Return the factor: float32, 0-d."""
        return tf.constant(self._value, tf.float32)

    def update(self, grads: Any) -> Update:
        """Do nothing: (no operation, True)."""
        return tf.no_op(), True

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's argument."""
        return {"loss_scale_value": self._value}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._value})"


class DynamicLossScale(LossScale):
    """A loss scale that grows while gradients are finite and shrinks when they are not.

    finite: good_steps + 1; from ``increment_period`` on
    scale = min(scale multiplier, ceiling), unless the product is not finite, and
    good_steps = 0. Otherwise scale = max(scale / multiplier, floor), good_steps = 0.

    Args:
        initial_loss_scale: the first scale, > 0.
        increment_period: steps from one growth to the next, >= 1.
        multiplier: the factor of growth, > 1; an overflow divides by it.
        floor: the least scale, not above the initial one; None takes 1, or the initial
            scale where that is smaller. Strict: 1 in any case.
        ceiling: the greatest scale, not below the initial one; None for float32's.
        strict: as the original: nothing is checked, an overflow raises a scale below 1
            to 1, a sparse gradient needs a dense_shape.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: ``tf.train.experimental.DynamicLossScale``, TensorFlow 1.15.

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
        floor: float | None = None,
        ceiling: float | None = None,
        strict: bool = False,
    ) -> None:
        self._policy = words.dynamic_policy(
            initial_loss_scale, increment_period, multiplier, floor, ceiling, strict
        )
        super().__init__()
        self.strict = strict
        with tf.init_scope():
            first = start_dynamic(self._policy)
            self.current_loss_scale = state_variable(
                "current_loss_scale", first.loss_scale, tf.float32
            )
            self.good_steps = state_variable("good_steps", first.good_steps, tf.int64)

    @property
    def initial_loss_scale(self) -> float:
        """The first scale."""
        return self._policy.initial_loss_scale

    @property
    def increment_period(self) -> int:
        """The steps from one growth to the next."""
        return self._policy.increment_period

    @property
    def multiplier(self) -> float:
        """The factor of growth."""
        return self._policy.multiplier

    @property
    def floor(self) -> float:
        """The least scale that an overflow leads to."""
        return self._policy.floor

    @property
    def ceiling(self) -> float:
        """The greatest scale that growth leads to."""
        return self._policy.ceiling

    def __call__(self) -> tf.Tensor:
        """Return the scale of the next step: float32, 0-d."""
        return self.current_loss_scale.read_value()

    @tf.autograph.experimental.do_not_convert
    def update(self, grads: Any) -> Update:
        """Move the scale by one step.

        Args:
            grads: any nest of tensors, ``tf.IndexedSlices`` and None.

        Returns:
            The operation that moves the scale (eagerly it has moved), and whether every
            element is finite once duplicate rows are summed: bool, 0-d.

        Raises:
            DtypeError: a TypeError; a gradient of integers.
            UnsupportedError: a ValueError; strict, a sparse one without dense_shape.
        """
        finite = tf.reduce_all(finite_flags(present_in(grads, self.strict)))
        before = DynamicState(self(), self.good_steps.read_value())
        after = step_dynamic(self._policy, before, finite)
        moved = tf.group(
            self.current_loss_scale.assign(after.loss_scale, read_value=False),
            self.good_steps.assign(after.good_steps, read_value=False),
        )
        return moved, finite

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return words.dynamic_config(self._policy, self.strict)


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


def present_in(grads: Any, strict: bool) -> list[tf.Tensor | tf.IndexedSlices]:
    """Return the gradients of a nest that are there, checked."""
    owner = "DynamicLossScale"
    flat = [as_gradient(g, "a gradient", owner) for g in tf.nest.flatten(grads)]
    present = [gradient for gradient in flat if gradient is not None]
    for gradient in present:
        words.check_gradient_dtype(gradient.dtype.name)
        if strict and lacks_shape(gradient):
            raise words.without_dense_shape("a sparse gradient")
    return present


def lacks_shape(gradient: Gradient) -> bool:
    """Say whether a gradient is sparse and does not know the shape of its variable."""
    return isinstance(gradient, tf.IndexedSlices) and gradient.dense_shape is None


def state_variable(name: str, value: float, dtype: tf.DType) -> tf.Variable:
    """Make a variable that conditions can change under any behaviour of TensorFlow."""
    return tf.compat.v1.Variable(
        value, trainable=False, name=name, dtype=dtype, use_resource=True
    )
