"""The deep net in TensorFlow; one compiled function takes many steps per call."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from harness.tasks.deep_digits.task import Plan, Settings
from harness.tasks.digits import Images
from harness.tasks.loss_scales import make_scale
from lockstep import tf as lockstep
from lockstep.interface import Array

MOMENTUM = 0.9


class Trainer:
    """Training inside ``tf.function``, traced once for all runs of these settings."""

    def __init__(self, settings: Settings, device: str) -> None:
        self.settings = settings
        self.device = {"cuda": "gpu"}.get(device, device)
        self.weights = []

    def reset(self, plan: Plan) -> None:
        """Use the images and first weights of a plan; reset all state."""
        dtype = self.settings.dtype
        if not self.weights:
            with tf.device(f"/{self.device}:0"):
                self.build([weight.astype(dtype) for weight in plan.weights])
        self.plan = plan
        self.training, self.held_out = (
            Images(images.features.astype(dtype), images.digit)
            for images in (plan.training, plan.held_out)
        )
        for variable, value in self.first_state:
            variable.assign(value)
        for variable, value in zip(self.weights, plan.weights, strict=True):
            variable.assign(value.astype(dtype))
            self.optimizer.master(variable).assign(value.astype(np.float32))

    def build(self, weights: list[Array]) -> None:
        """Make the variables and the optimizer, and save its initial state."""
        settings = self.settings
        self.weights = [tf.Variable(weight) for weight in weights]
        self.count = tf.Variable(0, dtype=tf.int64, trainable=False)
        rate = settings.rate * 2.0**-settings.loss_log2
        base = lockstep.MomentumOptimizer(rate, MOMENTUM)
        scale = make_scale(settings.method, lockstep)
        self.optimizer = lockstep.MixedPrecisionOptimizerWrapper(base, scale)
        self.optimizer.create_slots(self.weights)
        state = [self.count, *self.optimizer.variables()]
        self.first_state = [(variable, variable.numpy()) for variable in state]

    def advance(self, start: int, stop: int) -> list[float]:
        """Take the steps ``start`` to ``stop`` - 1; return the scale after each."""
        batches, factors = self.plan.batches[start:stop], self.plan.factors[start:stop]
        return self.steps(*self.training, batches, factors).numpy().tolist()

    def applied(self) -> int:
        """Return the number of steps so far that were not skipped."""
        return int(self.count)

    def scale(self) -> float:
        """Return the scale of the next step."""
        return float(self.optimizer.loss_scale)

    def gradients(self, rows: Array, factor: float) -> Array:
        """Return the gradients of the scaled loss before they are unscaled, flat."""
        features, digit = (part[rows] for part in self.training)
        product = tf.constant(float(factor) * self.scale(), tf.float32)
        return self.flat_gradients(features, digit, product).numpy()

    def measure(self) -> float:
        return float(self.loss(*self.held_out))

    @tf.function
    def steps(self, features, digit, batches, factors):
        """Take a step per batch, with its loss times its factor; return the scales."""
        total = batches.shape[0]
        scales = tf.TensorArray(tf.float32, total)
        for step in tf.range(total):
            rows = batches[step]
            x, y = tf.gather(features, rows), tf.gather(digit, rows)
            pairs = self.optimizer.compute_gradients(
                lambda x=x, y=y, factor=factors[step]: self.loss(x, y) * factor,
                self.weights,
            )
            self.optimizer.apply_gradients(pairs, self.count)
            scales = scales.write(step, self.optimizer.loss_scale)
        return scales.stack()

    @tf.function
    def flat_gradients(self, features, digit, factor):
        """Return the gradients of all weights, [n] float32."""
        with tf.GradientTape() as tape:
            loss = self.loss(features, digit) * factor
        tensors = tape.gradient(loss, self.weights)
        return tf.concat([tf.reshape(tf.cast(t, tf.float32), [-1]) for t in tensors], 0)

    @tf.function
    def loss(self, features, digit):
        """Return the mean cross-entropy in nats, in float32 whatever the weights."""
        first, layers, last = self.weights
        hidden = tf.tanh(features @ first)
        for layer in tf.unstack(layers):
            hidden = tf.tanh(hidden @ layer)
        logits = tf.cast(hidden @ last, tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(digit, logits)
        return tf.reduce_mean(losses)
