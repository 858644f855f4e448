"""Dense forms of sparse gradients."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["densify"]


def densify(change: tf.Tensor | tf.IndexedSlices, accumulator: tf.Tensor) -> tf.Tensor:
    """Return a change as a tensor with the shape of its accumulator."""
    if not isinstance(change, tf.IndexedSlices):
        return change
    rows = tf.shape(accumulator)[0]
    return tf.math.unsorted_segment_sum(change.values, change.indices, rows)
