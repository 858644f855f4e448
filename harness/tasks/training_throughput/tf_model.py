"""The three workloads in TensorFlow; a step is a ``tf.function``."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from harness.tasks.byte_transformer.tf_model import loss_of
from harness.tasks.training_throughput.task import (
    MOMENTUM,
    PRESENT,
    RATE,
    SHAPE,
    Plan,
    Settings,
    wrap,
)
from lockstep import tf as lockstep

Tensors = Mapping[str, tf.Tensor]


class Trainer:
    """A net with its optimizer, trained on the same batch in every step."""

    def __init__(
        self, settings: Settings, plan: Plan, device: str, wrapped: bool
    ) -> None:
        self.settings = settings
        kind = {"cuda": "gpu"}.get(device, device)
        with tf.device(f"/{kind}:0"):
            self.batch = {
                name: tf.constant(value)
                if value.dtype.kind == "i"
                else tf.cast(value, settings.dtype)
                for name, value in plan.batch.items()
            }
            self.weights = {n: self.variable(n, w) for n, w in plan.weights.items()}
            self.optimizer = self.make_optimizer(wrapped)
        self.compiled = tf.function(self.whole_step, autograph=False)

    def variable(self, name: str, value):
        """Return a weight in the precision of the run."""
        return tf.Variable(tf.cast(value, self.settings.dtype), name=name)

    def make_optimizer(self, wrapped: bool):
        """Return the bare optimizer, or our wrapper around it."""
        if self.settings.workload == "embeddings":
            base = lockstep.GradientDescentOptimizer(RATE)
        else:
            base = lockstep.MomentumOptimizer(RATE, MOMENTUM)
        axes = {weight.ref(): [1] for weight in self.weights.values()}
        return wrap(lockstep, base, self.settings, axes) if wrapped else base

    def step(self) -> None:
        """Take a whole step; return when the device has finished it."""
        self.compiled()
        tf.test.experimental.sync_devices()

    def whole_step(self) -> None:
        """Take a step; this is the body of the compiled function."""
        self.optimizer.minimize(self.losses, var_list=list(self.weights.values()))

    def loss(self) -> float:
        return float(self.losses())

    def losses(self) -> tf.Tensor:
        """Return the loss, in float32."""
        return self.loss_of(self.weights)

    def loss_of(self, weights: Tensors) -> tf.Tensor:
        """Return the loss at these weights, in float32."""
        if self.settings.workload == "transformer":
            return loss_of(SHAPE, weights, self.batch["windows"])
        multitask = self.settings.workload == "multitask"
        return (heads if multitask else distance)(weights, self.batch)


def heads(weights: Tensors, batch: Tensors) -> tf.Tensor:
    """Return the losses of the three heads, with 0 for an absent head."""
    hidden = tf.tanh(batch["features"] @ weights["trunk"])
    digit, parity, ink = (
        tf.cast(hidden @ weights[name], tf.float32)
        for name in ("digit", "parity", "ink")
    )
    losses = (
        tf.nn.sparse_softmax_cross_entropy_with_logits(batch["digit"], digit),
        tf.nn.sigmoid_cross_entropy_with_logits(
            tf.cast(batch["parity"], tf.float32), parity[:, 0]
        ),
        tf.math.squared_difference(ink[:, 0], tf.cast(batch["ink"], tf.float32)),
    )
    parts = zip(PRESENT, losses, strict=True)
    return tf.add_n([share * tf.reduce_mean(each) for share, each in parts])


def distance(weights: Tensors, batch: Tensors) -> tf.Tensor:
    """Return the logistic loss of pairs against pairs with another item."""
    rows = tf.gather(weights["user"], batch["users"])
    near, far = (tf.gather(weights["item"], batch[n]) for n in ("items", "others"))
    apart = tf.cast((far - near) * rows, tf.float32)
    return tf.reduce_mean(tf.nn.softplus(tf.reduce_sum(apart, axis=1)))
