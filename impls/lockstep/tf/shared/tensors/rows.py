"""Rows of a sparse gradient: duplicate indices are summed before any rule sees them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from lockstep.messages.base.pairs import require_indices, require_rows

__all__ = ["check_rows", "sum_duplicates"]


def check_rows(
    gradient: tf.IndexedSlices, variable: tf.Variable, name: str, owner: str
) -> None:
    """Raise unless the rows of a sparse gradient are, as far as known, the variable's.

    Eagerly the indices are read; in a graph TensorFlow looks at them as it runs.
    """
    indices = tf.convert_to_tensor(gradient.indices)
    rows = gradient.values.shape[:1]
    if not indices.shape.is_compatible_with(rows):
        require_rows(owner, name, indices.shape.num_elements(), rows[0])
    if tf.executing_eagerly() and indices.shape[0] and variable.shape.rank:
        found = np.asarray(indices)
        ends = int(found.min()), int(found.max())
        require_indices(owner, name, ends, variable.shape[0])


def sum_duplicates(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Add up the rows that share an index, in the order of their occurrence.

    ``values`` [k, ...] becomes [u, ...] with u distinct ``indices``, in the order in
    which they occur first. The sum is taken in the dtype of the values.
    """
    indices, positions = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(indices))
    return tf.IndexedSlices(values, indices, gradient.dense_shape)
