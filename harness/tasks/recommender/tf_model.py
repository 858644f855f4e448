"""The loss of the recommender in TensorFlow."""

from __future__ import annotations

import tensorflow as tf


def loss(rows: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return sum log(1 + exp(-user . chosen)) + log(1 + exp(user . other))."""
    scores = tf.reduce_sum(rows["user"] * rows["item"], axis=2)
    chosen, other = tf.unstack(scores, axis=1)
    return tf.reduce_sum(tf.nn.softplus(-chosen) + tf.nn.softplus(other))
