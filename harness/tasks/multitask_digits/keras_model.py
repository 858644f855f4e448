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
        variables, arguments = [*self.variables.values()], dict(self.recipe.arguments)
        if self.recipe.optimizer:
            self.optimizer = getattr(lockstep, self.recipe.optimizer)(**arguments)
        else:
            kind = keras.optimizers.Optimizer
            self.optimizer = own.make(arguments, variables, kind)
        if self.recipe.wrapper != "none":
            self.optimizer = lockstep.MultitaskOptimizerWrapper(self.optimizer)
        self.optimizer.build(variables)

    def apply(self, gradients: list[tf.Tensor]) -> None:
        self.optimizer.apply(gradients, [*self.variables.values()])

    def state(self) -> list[keras.Variable]:
        return self.optimizer.variables

    def slot_norm(self, weight: str, slot: str) -> float:
        """Return the 2-norm of a weight's slot; 0 without one.

        Keras has no momentum slot for RMSProp if the momentum is 0. The momentum slot
        of SGD includes the learning rate.
        """
        variable = self.optimizer.get_slot(self.variables[weight], slot)
        if variable is None:
            return 0.0
        plain = self.recipe.optimizer != "MomentumOptimizer"
        unit = 1.0 if plain else dict(self.recipe.arguments)["learning_rate"]
        return float(tf.norm(variable.value)) / unit
