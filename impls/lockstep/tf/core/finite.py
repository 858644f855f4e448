"""Whether gradients are finite, and what a scale does to them."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from lockstep.tf.core.zero_test import summed_values

__all__ = ["finite_flags", "times"]


def finite_flags(gradients: Sequence[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor:
    """Say of n gradients whether every element is finite: bool, [n].

    The duplicate rows of a sparse gradient are summed first.
    """
    if not gradients:
        return tf.ones([0], tf.bool)
    flags = [
        tf.reduce_all(tf.math.is_finite(summed_values(gradient)))
        for gradient in gradients
    ]
    return tf.stack(flags)


def times(values: tf.Tensor, reciprocal: tf.Tensor) -> tf.Tensor:
    """Return values times the float32 reciprocal, rounded to their dtype once."""
    wide = tf.float64 if values.dtype == tf.float64 else tf.float32
    product = tf.cast(values, wide) * tf.cast(reciprocal, wide)
    return tf.cast(product, values.dtype)
