"""The three workloads in Keras 3, with the losses of TensorFlow."""

from __future__ import annotations

import keras
import tensorflow as tf

from harness.tasks.training_throughput import tf_model
from harness.tasks.training_throughput.task import MOMENTUM, RATE, wrap
from lockstep import keras3 as lockstep


class Trainer(tf_model.Trainer):
    """A net with its optimizer, trained on the same batch in every step."""

    def variable(self, name: str, value) -> keras.Variable:
        return keras.Variable(value, dtype=self.settings.dtype)

    def make_optimizer(self, wrapped: bool):
        dense = self.settings.workload != "embeddings"
        optimizer = keras.optimizers.SGD(RATE, MOMENTUM if dense else 0.0)
        variables = list(self.weights.values())
        if wrapped:
            axes = {variable.path: [1] for variable in variables}
            optimizer = wrap(lockstep, optimizer, self.settings, axes)
        optimizer.build(variables)
        self.scale = getattr(optimizer, "scale_loss", lambda value: value)
        return optimizer

    def whole_step(self) -> None:
        variables = list(self.weights.values())
        inner = [variable.value for variable in variables]
        with tf.GradientTape() as tape:
            scaled = self.scale(self.losses())
        self.optimizer.apply(tape.gradient(scaled, inner), variables)

    def losses(self) -> tf.Tensor:
        return self.loss_of({name: w.value for name, w in self.weights.items()})
