"""Accumulation of micro-batches; sparse gradients remain sparse."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["add_share"]

Gradient = tf.Tensor | tf.IndexedSlices | None


def add_share(total: Gradient, gradient: Gradient, iter_size: int) -> Gradient:
    """Return total + gradient / iter_size; the reference has the rules."""
    if gradient is None:
        return total
    share = divided(gradient, iter_size)
    if total is None:
        return share
    if isinstance(total, tf.IndexedSlices) and isinstance(share, tf.IndexedSlices):
        indices = tf.concat([total.indices, tf.cast(share.indices, tf.int64)], 0)
        values = tf.concat([total.values, share.values], 0)
        return tf.IndexedSlices(values, indices, total.dense_shape)
    return dense_like(total, share) + dense_like(share, total)


def divided(
    gradient: tf.Tensor | tf.IndexedSlices, iter_size: int
) -> tf.Tensor | tf.IndexedSlices:
    """Return gradient / iter_size; a sparse one keeps its indices."""
    if isinstance(gradient, tf.IndexedSlices):
        values = divided(gradient.values, iter_size)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient / tf.cast(iter_size, gradient.dtype)


def dense_like(
    gradient: tf.Tensor | tf.IndexedSlices, other: tf.Tensor | tf.IndexedSlices
) -> tf.Tensor:
    """Return a gradient as a tensor with the number of rows of ``other``."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows = tf.shape(other)[0]
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, rows)
