"""The three workloads in TensorFlow; a step is a ``tf.function``."""

from __future__ import annotations

import tensorflow as tf

from harness.tasks.training_throughput.task import LIMIT, MOMENTUM, RATE, Plan, Settings
from harness.tasks.training_throughput.tf_losses import loss, tensors
from lockstep import tf as lockstep


class Trainer:
    """A net with its optimizer, trained on the same batch in every step."""

    def __init__(
        self, settings: Settings, plan: Plan, device: str, wrapped: bool
    ) -> None:
        self.workload = settings.workload
        kind = {"cuda": "gpu"}.get(device, device)
        with tf.device(f"/{kind}:0"):
            self.batch = tensors(plan.batch, settings.dtype)
            self.weights = {
                name: tf.Variable(tf.cast(value, settings.dtype), name=name)
                for name, value in plan.weights.items()
            }
            self.optimizer = self.make_optimizer(settings.precision, wrapped)
        self.compiled = tf.function(self.whole_step, autograph=False)

    def make_optimizer(self, precision: str, wrapped: bool):
        """Return the bare optimizer, or our wrapper around it."""
        if self.workload == "embeddings":
            sgd = lockstep.GradientDescentOptimizer(RATE)
            axes = {weight.ref(): [1] for weight in self.weights.values()}
            clip = lockstep.VariableClippingOptimizer
            return clip(sgd, axes, LIMIT) if wrapped else sgd
        sgd = lockstep.MomentumOptimizer(RATE, MOMENTUM)
        if not wrapped:
            return sgd
        if self.workload == "multitask":
            return lockstep.MultitaskOptimizerWrapper(sgd)
        if precision == "fp32":
            return lockstep.MixedPrecisionLossScaleOptimizer(sgd, "dynamic")
        scale = "dynamic" if precision == "fp16" else None
        return lockstep.MixedPrecisionOptimizerWrapper(sgd, scale)

    def step(self) -> None:
        """Take a whole step; return when the device has finished it."""
        self.compiled()
        tf.test.experimental.sync_devices()

    def whole_step(self) -> None:
        """Take a step; this is the body of the compiled function."""
        self.optimizer.minimize(self.losses, var_list=list(self.weights.values()))

    def loss(self) -> float:
        """Return the loss of the batch."""
        return float(self.losses())

    def losses(self) -> tf.Tensor:
        """Return the loss, in float32."""
        return loss(self.workload, self.weights, self.batch)
