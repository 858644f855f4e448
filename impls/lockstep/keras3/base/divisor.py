"""What gradients are still to be divided by, of the one step that is on its way."""

from __future__ import annotations

import tensorflow as tf

from lockstep.keras3.base.gradients import value_of
from lockstep.keras3.scaling.loss_scale import state_variable

__all__ = ["Divisor"]


class Divisor:
    """The scale of a loss, until its gradients are divided by it.

    It holds for one step, of which there may be no trace here: a multitask wrapper
    outside counts a step in which every gradient is zero, and hands nothing on. So the
    counter is remembered too, and after it has moved the divisor is 1.

    Variables, since the loss and the gradients may be in graphs of their own; not among
    the optimizer's, since between two steps there is nothing to save.
    """

    def __init__(self) -> None:
        self.value = value_of(state_variable("divisor", 1.0, "float32"))
        self.step = value_of(state_variable("divisor_step", 0, "int64"))

    def put(self, scale: tf.Tensor, iterations: tf.Tensor) -> None:
        """Note the scale of a loss; ``iterations`` counts the steps before this one."""
        self.value.assign(scale, read_value=False)
        self.step.assign(tf.cast(iterations, tf.int64), read_value=False)

    def look(self, iterations: tf.Tensor) -> tf.Tensor:
        """Return what to divide by: float32, 0-d."""
        fresh = tf.equal(self.step, tf.cast(iterations, tf.int64))
        return tf.where(fresh, self.value.read_value(), 1.0)

    def take(self, iterations: tf.Tensor) -> tf.Tensor:
        """Return what to divide by; from then on it is 1."""
        divisor = self.look(iterations)
        self.value.assign(1.0, read_value=False)
        return divisor
