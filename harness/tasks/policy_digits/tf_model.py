"""The classifier in TensorFlow, with one compiled loop for all schedules."""

from __future__ import annotations

from functools import cache

import tensorflow as tf

from harness.tasks.digits import CLASSES, INPUTS
from harness.tasks.policy_digits.data import Plan
from harness.tasks.policy_digits.settings import Settings
from lockstep import registry
from lockstep.tf import GradientDescentOptimizer


class Trainer:
    """One run; all runs share the compiled functions."""

    def __init__(self, settings: Settings, plan: Plan, device: str) -> None:
        self.device = {"cuda": "gpu"}.get(device, device)
        policies = registry.load("tf", settings.mode == "strict").lr_policies
        self.policy = getattr(policies, settings.policy)
        self.arguments = settings.arguments
        self.plan = plan
        self.loop = Loop.on(self.device)
        self.loop.weight.assign(tf.zeros([INPUTS, CLASSES]))

    def advance(self, start: int, stop: int) -> list[float]:
        """Take the steps ``start`` to ``stop`` - 1; return the rate of each."""
        steps = tf.range(start, stop, dtype=tf.int64)
        rates = self.policy(steps, **self.arguments)
        rates = tf.broadcast_to(tf.cast(rates, tf.float32), [stop - start])
        batches = self.plan.batches[start:stop]
        self.loop.run(*self.plan.training, batches, rates)
        return rates.numpy().tolist()

    def rate(self, step: int) -> float:
        """Return the rate of ``step``."""
        return float(tf.cast(self.policy(step, **self.arguments), tf.float32))

    def loss(self) -> float:
        """Return the held-out loss in nats."""
        return float(self.loop.loss_of(*self.plan.held_out))


class Loop:
    """The weights, the optimizer and a loop over steps, traced once."""

    def __init__(self, device: str) -> None:
        with tf.device(f"/{device}:0"):
            self.weight = tf.Variable(tf.zeros([INPUTS, CLASSES]))
            self.rate = tf.Variable(0.0, trainable=False)
        self.optimizer = GradientDescentOptimizer(lambda: self.rate)
        self.run = tf.function(self.steps, reduce_retracing=True)

    @staticmethod
    @cache
    def on(device: str) -> Loop:
        """Return the shared loop of a device."""
        return Loop(device)

    def steps(self, features, digit, batches, rates) -> None:
        """Take one step of gradient descent per batch, each with its learning rate."""
        for step in tf.range(tf.shape(batches)[0]):
            rows = batches[step]
            self.rate.assign(rates[step])
            with tf.GradientTape() as tape:
                loss = self.loss_of(tf.gather(features, rows), tf.gather(digit, rows))
            gradient = tape.gradient(loss, self.weight)
            self.optimizer.apply_gradients([(gradient, self.weight)])

    def loss_of(self, features, digit) -> tf.Tensor:
        """Return the mean cross-entropy in nats."""
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                digit, features @ self.weight
            )
        )
