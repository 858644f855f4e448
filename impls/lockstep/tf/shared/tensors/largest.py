"""What automatic loss scaling looks for: NaN, and the largest magnitude."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

__all__ = ["find_largest"]


def find_largest(values: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return whether any element is NaN, and max |element| over those that are not.

    The tensors have one dtype, as the maximum has. Where there is none, and where all
    are NaN, it is -inf.
    """
    if not values:
        return tf.constant(False), tf.constant(float("-inf"))
    has_nan = tf.stack([tf.reduce_any(tf.math.is_nan(v)) for v in values])
    largest = tf.stack([largest_of(value) for value in values])
    return tf.reduce_any(has_nan), tf.reduce_max(largest)


def largest_of(values: tf.Tensor) -> tf.Tensor:
    """Return the largest magnitude that is not NaN; -inf if there is none."""
    nothing = tf.constant(float("-inf"), values.dtype)
    known = tf.where(tf.math.is_nan(values), nothing, tf.abs(values))
    return tf.reduce_max(known)
