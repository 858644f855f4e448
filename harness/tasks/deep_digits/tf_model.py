"""The deep net in TensorFlow, with one compiled loop per method."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import tensorflow as tf

from harness.tasks.deep_digits.task import Plan, Settings, Taken
from harness.tasks.digits import Images
from harness.tasks.loss_scales import make_scale
from lockstep import tf as lockstep
from lockstep.interface import Array

MOMENTUM = 0.9


class Trainer:
    """One run; runs with the same settings share the compiled functions."""

    def __init__(self, settings: Settings, plan: Plan, device: str) -> None:
        self.plan = plan
        self.loop = Loop.of(settings, plan, {"cuda": "gpu"}.get(device, device))
        self.loop.restart(plan.weights)
        dtype = settings.dtype
        self.training, self.held_out = (
            Images(images.features.astype(dtype), images.digit)
            for images in (plan.training, plan.held_out)
        )

    def advance(self, start: int, stop: int) -> list[Taken]:
        """Take the steps ``start`` to ``stop`` - 1; return the result of each."""
        batches, factors = self.plan.batches[start:stop], self.plan.factors[start:stop]
        scales, counts = self.loop.run(*self.training, batches, factors)
        applied = np.diff(counts.numpy(), prepend=self.loop.applied) > 0
        self.loop.applied = int(counts[-1])
        pairs = zip(scales.numpy().tolist(), applied.tolist(), strict=True)
        return [Taken(*pair) for pair in pairs]

    def scale(self) -> float:
        """Return the scale of the next step."""
        return float(self.loop.optimizer.loss_scale)

    def gradients(self, rows: Array, factor: float) -> dict[str, Array]:
        """Return the gradients of the scaled loss before they are unscaled, flat."""
        features, digit = (part[rows] for part in self.training)
        product = tf.constant(float(factor) * self.scale(), tf.float32)
        tensors = self.loop.probe(features, digit, product)
        names = ("weights", "activations")
        return {name: each.numpy() for name, each in zip(names, tensors, strict=True)}

    def measure(self) -> tuple[float, float]:
        """Return the held-out loss in nats, and the accuracy."""
        loss, right = self.loop.measure(*self.held_out)
        return float(loss), float(right)


class Loop:
    """The weights, the optimizer and a loop over steps, traced once."""

    cache: ClassVar[dict[str, Loop]] = {}

    def __init__(self, settings: Settings, plan: Plan, device: str) -> None:
        rate = settings.rate * 2.0**-settings.loss_log2
        with tf.device(f"/{device}:0"):
            self.weights = [
                tf.Variable(weight.astype(settings.dtype)) for weight in plan.weights
            ]
            self.count = tf.Variable(0, dtype=tf.int64, trainable=False)
            base = lockstep.MomentumOptimizer(rate, MOMENTUM)
            scale = make_scale(settings, lockstep)
            self.optimizer = lockstep.MixedPrecisionOptimizerWrapper(base, scale)
            self.optimizer.create_slots(self.weights)
        self.applied = 0
        state = self.optimizer.variables()
        self.first = [(variable, variable.numpy()) for variable in state]
        self.run = tf.function(self.steps)
        self.probe = tf.function(self.gradients)
        self.measure = tf.function(self.quality)

    @classmethod
    def of(cls, settings: Settings, plan: Plan, device: str) -> Loop:
        """Return the shared loop of these settings on a device."""
        key = f"{device} {settings}"
        if key not in cls.cache:
            cls.cache[key] = cls(settings, plan, device)
        return cls.cache[key]

    def restart(self, weights: tuple[Array, ...]) -> None:
        """Set the weights, and reset the slots, the scale and the counts."""
        for variable, value in self.first:
            variable.assign(value)
        for variable, value in zip(self.weights, weights, strict=True):
            variable.assign(value.astype(variable.dtype.as_numpy_dtype))
            self.optimizer.master(variable).assign(value.astype(np.float32))
        self.count.assign(0)
        self.applied = 0

    def steps(self, features, digit, batches, factors):
        """Take one step per batch, with its loss times its factor.

        Returns:
            The loss scale after each step, [steps] float32, and the number of applied
            steps so far, [steps] int64.
        """
        total = batches.shape[0]
        scales, counts = (tf.TensorArray(t, total) for t in (tf.float32, tf.int64))
        for step in tf.range(total):
            rows = batches[step]
            x, y = tf.gather(features, rows), tf.gather(digit, rows)
            pairs = self.optimizer.compute_gradients(
                lambda x=x, y=y, factor=factors[step]: (
                    loss_of(self.forward(x)[0], y) * factor
                ),
                self.weights,
            )
            self.optimizer.apply_gradients(pairs, self.count)
            scales = scales.write(step, self.optimizer.loss_scale)
            counts = counts.write(step, self.count.read_value())
        return scales.stack(), counts.stack()

    def gradients(self, features, digit, factor):
        """Return the gradients of the loss times ``factor``, flat and in float32.

        Returns:
            The gradients of the weights and of the activations: [n] each.
        """
        with tf.GradientTape() as tape:
            logits, hidden = self.forward(features)
            loss = loss_of(logits, digit) * factor
        tensors = tape.gradient(loss, [*self.weights, *hidden])
        flat = [tf.reshape(tf.cast(each, tf.float32), [-1]) for each in tensors]
        return tf.concat(flat[:3], 0), tf.concat(flat[3:], 0)

    def quality(self, features, digit):
        """Return the mean loss in nats, and the accuracy."""
        logits, _ = self.forward(features)
        answers = tf.argmax(logits, axis=1, output_type=tf.int32)
        right = tf.reduce_mean(tf.cast(tf.equal(answers, digit), tf.float32))
        return loss_of(logits, digit), right

    def forward(self, features):
        """Return the logits, and the activations of each layer."""
        first, layers, last = self.weights
        hidden = [tf.tanh(features @ first)]
        for layer in tf.unstack(layers):
            hidden.append(tf.tanh(hidden[-1] @ layer))
        return hidden[-1] @ last, hidden


def loss_of(logits, digit):
    """Return the mean cross-entropy in nats, in float32 for logits of any dtype."""
    wide = tf.cast(logits, tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(digit, wide)
    return tf.reduce_mean(losses)
