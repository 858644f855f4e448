"""Rows of a sparse gradient: duplicate indices are summed before any rule sees them."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["sum_duplicates"]


def sum_duplicates(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Add up the rows that share an index, in the order of their occurrence.

    ``values`` [k, ...] becomes [u, ...] with u distinct ``indices``, in the order in
    which they occur first. The sum is taken in the dtype of the values.
    """
    indices, positions = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(indices))
    return tf.IndexedSlices(values, indices, gradient.dense_shape)
