"""The loss of TransE in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from harness.tasks.link_prediction.settings import MARGIN


def loss(rows: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return sum max(0, margin + d(true) - d(false)), d = |head + relation - tail|."""
    head, tail, false_head, false_tail = tf.unstack(rows["entity"], axis=1)
    relation = rows["relation"][:, 0]
    true = tf.norm(head + relation - tail, axis=1)
    false = tf.norm(false_head + relation - false_tail, axis=1)
    return tf.reduce_sum(tf.nn.relu(MARGIN + true - false))
