"""Loss scales: a fixed factor, and one that adapts to overflows (Keras 3)."""

from __future__ import annotations

import math
from typing import Any, Self

import keras
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.keras3.base.gradients import as_gradient, value_of
from lockstep.messages.scaling import loss_scale as words
from lockstep.quirks import quirks_of
from lockstep.tf.shared.scaling.dynamic_scale import (
    DynamicNames,
    DynamicState,
    present_in,
    start_dynamic,
    step_dynamic,
)
from lockstep.tf.shared.tensors.finite import finite_flags

__all__ = [
    "DynamicLossScale",
    "FixedLossScale",
    "LossScale",
    "get",
    "state_variable",
]

registered = keras.saving.register_keras_serializable(package="lockstep")


class LossScale(tf.Module):
    """A factor for a loss; an optimizer with it saves its variables."""

    strict = False
    good_steps: Any = 0
    least: float = math.inf

    def __call__(self) -> tf.Tensor:
        """Return the scale of the next step: float32, 0-d."""
        raise NotImplementedError

    def update(self, grads: Any) -> tuple[None, Any]:
        """Update the scale; return None, and whether to apply ``grads``."""
        raise NotImplementedError

    def move(self, finite: tf.Tensor) -> None:
        """Update the scale after a step; ``finite``: bool, 0-d."""
        raise NotImplementedError

    @property
    def variables(self) -> list[keras.Variable]:
        """The state, as Keras variables."""
        return []

    def at_floor(self) -> tf.Tensor:
        """Whether no overflow can make the scale smaller: bool, 0-d."""
        return self() <= self.least

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments except ``strict``."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return self.arguments() | ({"strict": True} if self.strict else {})

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Create a loss scale from the result of ``get_config``."""
        return cls(**words.checked_config(cls, config))

    def __repr__(self) -> str:
        return words.shown(type(self).__name__, self.arguments())


@registered
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

    def update(self, grads: Any) -> tuple[None, Any]:
        """Do nothing: (None, True)."""
        return None, True

    def move(self, finite: tf.Tensor) -> None:
        """Do nothing."""

    def arguments(self) -> dict[str, Any]:
        """Return the factor."""
        return {"loss_scale_value": self._value}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._value})"


@registered
@documented
class DynamicLossScale(DynamicNames, LossScale):
    """...

    Example:
        >>> scale = DynamicLossScale(8.0, increment_period=1)
        >>> _, finite = scale.update([keras.ops.array([1.0, float("inf")]), None])
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
        self.current_loss_scale = state_variable(
            "current_loss_scale", first.loss_scale, "float32"
        )
        self.good_steps = state_variable("good_steps", first.good_steps, "int64")
        if self._policy.is_patient:
            self.overflows = state_variable("overflows", first.overflows, "int64")
            self.steps = state_variable("steps", first.steps, "int64")

    @property
    def variables(self) -> list[keras.Variable]:
        """The scale and the good steps; with patience, its two counts too."""
        state = [self.current_loss_scale, self.good_steps]
        return (
            [*state, self.overflows, self.steps] if self._policy.is_patient else state
        )

    def __call__(self) -> tf.Tensor:
        """Return the scale of the next step: float32, 0-d."""
        return value_of(self.current_loss_scale).read_value()

    @tf.autograph.experimental.do_not_convert
    @documented
    def update(self, grads: Any) -> tuple[None, tf.Tensor]:
        """...

        Returns:
            None, and whether every element is finite after duplicate rows are summed:
            bool, 0-d.
        """
        needs_shape = quirks_of(self.strict).dynamic_scale_dense_shape
        present = present_in(grads, as_gradient, needs_shape)
        finite = tf.reduce_all(finite_flags(present))
        self.move(finite)
        return None, finite

    def move(self, finite: tf.Tensor) -> None:
        """Update the scale after a step, finite or not."""
        state = [value_of(variable) for variable in self.variables]
        before = DynamicState(*(variable.read_value() for variable in state))
        after = step_dynamic(self._policy, before, finite)
        # Without patience only the first two have values.
        for variable, value in zip(state, after, strict=False):
            variable.assign(value, read_value=False)

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments except ``strict``."""
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


def state_variable(name: str, value: float, dtype: str) -> keras.Variable:
    """Create a state variable, outside of any graph that is being built."""
    with tf.init_scope():
        return keras.Variable(
            value,
            dtype=dtype,
            trainable=False,
            # A mixed-precision layer that reads it must not get float16.
            autocast=False,
            aggregation="only_first_replica",
            name=name,
        )
