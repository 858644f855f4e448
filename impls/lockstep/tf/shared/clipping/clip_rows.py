"""The rule of row clipping on tensors."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from lockstep.messages.clipping.variable_clipping import MARGINS
from lockstep.quirks import Quirks
from lockstep.tf.shared.gradients import HALF, as_tensor

__all__ = ["clip_rows", "excess", "normalize_rows", "row_norms"]


def clip_rows(
    values: tf.Tensor, axes: Sequence[int], max_norm: float | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the clipped ``values``, and a mask of the norms above ``max_norm``.

    :func:`lockstep.reference.clipping.clip_rows.clip_rows` explains the rule.

    Args:
        axes: distinct axes, all >= 0; without axes each element is its own norm.
    """
    wide = tf.float32 if values.dtype in HALF else values.dtype
    limit = tf.cast(as_tensor(max_norm, wide), tf.float64)
    norms = norms_in_float64(values, axes)
    fits = norms <= limit
    # A row of zeros, which fits, must not give an infinity, even an unused one:
    # tf.debugging.enable_check_numerics would stop the program.
    factors = tf.math.divide_no_nan(limit, norms)
    above = norms_in_float64(scaled(values, factors, wide), axes) > limit
    lower = factors * (1 - MARGINS[values.dtype.name])
    clipped = scaled(values, tf.where(above, lower, factors), wide)
    return tf.where(fits, values, clipped), tf.logical_not(fits)


def norms_in_float64(values: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """Return the norms over ``axes``, squares and sums in float64."""
    return row_norms(tf.cast(values, tf.float64), axes)


def scaled(values: tf.Tensor, factors: tf.Tensor, wide: tf.DType) -> tf.Tensor:
    """Return w times f, computed in ``wide``."""
    return tf.cast(tf.cast(values, wide) * tf.cast(factors, wide), values.dtype)


def excess(
    values: tf.Tensor,
    axes: Sequence[int],
    max_norm: float | tf.Tensor,
    quirks: Quirks,
) -> tf.Tensor:
    """Return w - c, which the original subtracts from w even if the norm is small.

    c is :func:`normalize_rows` in the dtype of ``values``. TensorFlow's kernels flush
    float32 subnormals to zero, as in the original.
    """
    wide = tf.float32 if values.dtype in HALF else values.dtype
    working = values if quirks.row_clip_float16 else tf.cast(values, wide)
    clipped = tf.cast(normalize_rows(working, axes, max_norm), values.dtype)
    difference = values - clipped
    if quirks.row_clip_below:
        return difference
    above = row_norms(working, axes) > as_tensor(max_norm, working.dtype)
    return tf.where(above, difference, tf.zeros_like(difference))


def normalize_rows(
    values: tf.Tensor, axes: Sequence[int], max_norm: float | tf.Tensor
) -> tf.Tensor:
    """Return the value that the original writes for w, in its order of operations."""
    limit = as_tensor(max_norm, values.dtype)
    return values * limit / tf.maximum(row_norms(values, axes), limit)


def row_norms(values: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """Return n in the dtype of w; the ``axes`` keep length 1."""
    return tf.sqrt(tf.reduce_sum(tf.square(values), list(axes), keepdims=True))
