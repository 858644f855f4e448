"""The losses of the three workloads on TensorFlow tensors, for tf and Keras 3."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from harness.tasks.byte_transformer.tf_model import loss_of
from harness.tasks.training_throughput.task import PRESENT, SHAPE
from lockstep.interface import Array

Tensors = Mapping[str, tf.Tensor]


def loss(workload: str, weights: Tensors, batch: Tensors) -> tf.Tensor:
    """Return the loss of a batch, in float32."""
    if workload == "transformer":
        return loss_of(SHAPE, weights, batch["windows"])
    return (
        heads(weights, batch) if workload == "multitask" else distance(weights, batch)
    )


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


def tensors(values: Mapping[str, Array], dtype: str) -> dict[str, tf.Tensor]:
    """Return a batch as constants; floats are cast to ``dtype``."""
    return {
        name: tf.constant(value) if value.dtype.kind == "i" else tf.cast(value, dtype)
        for name, value in values.items()
    }
