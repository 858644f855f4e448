"""The updates in TensorFlow: SGD with a rate of 1, with and without masters."""

from __future__ import annotations

import tensorflow as tf

from harness.tasks.lost_updates.data import Plan
from harness.tasks.lost_updates.settings import Settings
from lockstep.interface import Array
from lockstep.tf import GradientDescentOptimizer, MixedPrecisionOptimizerWrapper


class Trainer:
    """One vector of weights with its optimizer."""

    def __init__(self, settings: Settings, plan: Plan, device: str) -> None:
        place = {"cuda": "gpu"}.get(device, device)
        with tf.device(f"/{place}:0"):
            self.weight = tf.Variable(plan.weights)
            self.updates = tf.constant(plan.updates)
        self.optimizer = GradientDescentOptimizer(1.0)
        self.master = self.weight
        if settings.method == "masters":
            self.optimizer = MixedPrecisionOptimizerWrapper(self.optimizer)
            self.master = self.optimizer.master(self.weight)

    def step(self) -> None:
        """Apply the updates once more."""
        self.optimizer.apply_gradients([(self.updates, self.weight)])

    def trained(self) -> Array:
        """Return the updated tensor: weights or masters."""
        value: Array = self.master.numpy()
        return value

    def weights(self) -> Array:
        """Return the float16 weights."""
        value: Array = self.weight.numpy()
        return value
