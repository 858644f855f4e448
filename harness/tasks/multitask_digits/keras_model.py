"""The three tasks in Keras 3, in the loop of TensorFlow."""

from __future__ import annotations

import keras
import tensorflow as tf

from harness.tasks import own
from harness.tasks.multitask_digits import tf_model
from harness.tasks.multitask_digits.task import Plan
from lockstep import keras3 as lockstep


class Trainer(tf_model.Trainer):
    """Training inside ``tf.function``, traced once for all runs of this recipe."""

    def build(self, plan: Plan) -> None:
        self.variables = {name: keras.Variable(w) for name, w in plan.weights.items()}
        self.weights = {name: each.value for name, each in self.variables.items()}
        variables, kind = [*self.variables.values()], keras.optimizers.Optimizer
        self.optimizer = own.optimizer_of(
            self.recipe.optimizer, lockstep, variables, kind
        )
        if self.recipe.wrapper != "none":
            self.optimizer = lockstep.MultitaskOptimizerWrapper(self.optimizer)
        self.optimizer.build(variables)
        self.slots = ()  # They have other names and units in Keras.

    def apply(self, gradients: list[tf.Tensor]) -> None:
        self.optimizer.apply(gradients, [*self.variables.values()])

    def state(self) -> list[keras.Variable]:
        return self.optimizer.variables
