"""The loss of TransE in TensorFlow."""

from __future__ import annotations

import tensorflow as tf


def loss(rows: dict[str, tf.Tensor], margin: float, penalty: float) -> tf.Tensor:
    """Return sum max(0, margin + d(true) - d(false)), d = |head + relation - tail|.

    Plus ``penalty`` times the sum of the squares of the batch's entities. An entity
    counts as often as the batch names it.
    """
    head, tail, false_head, false_tail = tf.unstack(rows["entity"], axis=1)
    relation = rows["relation"][:, 0]
    true = tf.norm(head + relation - tail, axis=1)
    false = tf.norm(false_head + relation - false_tail, axis=1)
    ranking = tf.reduce_sum(tf.nn.relu(margin + true - false))
    if not penalty:
        return ranking
    return ranking + penalty * tf.reduce_sum(tf.square(rows["entity"]))
