"""Rules that compute in float32, if half precision would round their scalars to 0."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from lockstep.keras3.base.gradients import value_of
from lockstep.keras3.optimizers.rule_optimizer import RuleOptimizer
from lockstep.messages.keras3 import ACCUMULATOR

__all__ = ["WidenedRule"]


class Wide:
    """A float32 stand-in for a half-precision variable during an update."""

    dtype = "float32"

    def __init__(self, variable: Any) -> None:
        self.variable = variable
        self.shape = variable.shape

    def subtract(self, change: tf.Tensor) -> None:
        """Subtract in float32 and round once."""
        value = value_of(self.variable)
        wide = tf.cast(value.read_value(), tf.float32) - change
        value.assign(tf.cast(wide, value.dtype))


class WidenedRule(RuleOptimizer):
    """A rule with float32 arithmetic and float32 slots for half-precision variables.

    In bfloat16 a beta2 of 0.999 becomes 1, in float16 an epsilon of 1e-8 becomes 0, so
    Keras' rules stop there or divide 0 by 0. Strict uses Keras' arithmetic.
    """

    _slot_dtype: str | None = None

    def widens(self, variable: Any) -> bool:
        """Whether a variable is updated in float32 instead of its own dtype."""
        own = self._quirks.half_precision_scalars
        return not own and tf.as_dtype(variable.dtype).size < 4

    def add_variable_from_reference(
        self,
        reference_variable: Any,
        name: str | None = None,
        initializer: Any = "zeros",
    ) -> keras.Variable:
        """Create a slot, in float32 for a half-precision variable.

        Keras adds gradients to its accumulator, so that has their dtype.
        """
        widens = self.widens(reference_variable) and name != ACCUMULATOR
        dtype = "float32" if widens else None
        vars(self)["_slot_dtype"] = dtype
        try:
            return super().add_variable_from_reference(
                reference_variable, name, initializer
            )
        finally:
            vars(self)["_slot_dtype"] = None

    def add_variable(
        self,
        shape: Any,
        initializer: Any = "zeros",
        dtype: Any = None,
        *options: Any,
        **named: Any,
    ) -> keras.Variable:
        """Create a state variable; a slot may have its own dtype."""
        dtype = self._slot_dtype or dtype
        return super().add_variable(shape, initializer, dtype, *options, **named)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Apply the rule of Keras, in float32 for half precision."""
        stand_in = Wide(variable) if self.widens(variable) else variable
        super().update_step(gradient, stand_in, learning_rate)

    def assign_sub(self, variable: Any, value: Any) -> None:
        """Subtract from a variable; the rule calls this with the change."""
        if isinstance(variable, Wide):
            variable.subtract(tf.convert_to_tensor(value))
        else:
            super().assign_sub(variable, value)

    def _var_key(self, variable: Any) -> Any:
        known = variable.variable if isinstance(variable, Wide) else variable
        return super()._var_key(known)
