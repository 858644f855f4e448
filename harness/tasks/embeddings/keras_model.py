"""Tables of rows in Keras 3: layers and an optimizer in the loop of TensorFlow.

The losses of the tasks are those of TensorFlow.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from harness.tasks import own
from harness.tasks.embeddings import tf_model
from harness.tasks.embeddings.tf_model import link_prediction as link_prediction
from harness.tasks.embeddings.tf_model import recommender as recommender
from lockstep import keras3 as lockstep


class Trainer(tf_model.Trainer):
    """Training inside ``tf.function``, traced once for all runs that share it."""

    def build(self, shapes) -> None:
        self.layers = {
            name: keras.layers.Embedding(*shape, name=name)
            for name, shape in shapes.items()
        }
        for layer in self.layers.values():
            layer.build()
        self.variables = [layer.embeddings for layer in self.layers.values()]
        pairs = zip(self.layers, self.variables, strict=True)
        self.weights = {name: variable.value for name, variable in pairs}
        self.optimizer = own.optimizer_of(
            self.of.optimizer, lockstep, self.variables, keras.optimizers.Optimizer
        )
        if self.of.limit == "clip":
            axes = {self.layers[n].embeddings.path: [1] for n in self.limited}
            self.optimizer = lockstep.VariableClippingOptimizer(
                self.optimizer, axes, self.of.max_norm
            )
        self.optimizer.build(self.variables)

    def apply(self, gradients) -> None:
        self.optimizer.apply(gradients, self.variables)

    def state(self) -> list[keras.Variable]:
        return self.optimizer.variables

    def look_up(self, name: str, ids: tf.Tensor) -> tf.Tensor:
        rows = self.layers[name](ids)
        if self.of.limit != "lookup" or name not in self.limited:
            return rows
        norms = keras.ops.norm(rows, axis=-1, keepdims=True)
        limit = self.of.max_norm
        return rows * (limit / keras.ops.maximum(norms, limit))
