"""Row clipping on tensors: shorten the rows whose norms are above a limit."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from lockstep.tf.shared.gradients import HALF, as_tensor

# Rows that rounding leaves above the limit are made smaller by this share. It is a sum
# of rounding errors: the factor and the product are rounded to float32 or to the dtype
# itself, half precision is rounded once more, and the norm in float64 has an error.
MARGINS = {
    tf.float16: 2.0**-11 + 2.0**-23 + 2.0**-50,
    tf.bfloat16: 2.0**-8 + 2.0**-23 + 2.0**-50,
    tf.float32: 2.0**-23 + 2.0**-50,
    tf.float64: 2.0**-52 + 2.0**-50,
}


def clip_rows(
    values: tf.Tensor, axes: Sequence[int], max_norm: float | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the clipped ``values``, and a mask of the norms above ``max_norm``.

    Where n = sqrt(sum over axes of w^2) > max_norm, w becomes w max_norm / n, computed
    in at least float32 with norms in float64. Clipped again, a row moves by at most one
    ULP of its largest element. Rows with smaller norms keep their bits.

    Args:
        values: real tensor of any shape.
        axes: distinct axes, all >= 0; without axes each element is its own norm.
        max_norm: the largest norm that is not clipped, > 0.
    """
    wide = tf.float32 if values.dtype in HALF else values.dtype
    limit = tf.cast(as_tensor(max_norm, wide), tf.float64)
    norms = row_norms(values, axes)
    fits = norms <= limit
    # A row of zeros, which fits, must not give an infinity, even an unused one:
    # tf.debugging.enable_check_numerics would stop the program.
    factors = tf.math.divide_no_nan(limit, norms)
    above = row_norms(scaled(values, factors, wide), axes) > limit
    lower = factors * (1 - MARGINS[values.dtype])
    clipped = scaled(values, tf.where(above, lower, factors), wide)
    return tf.where(fits, values, clipped), tf.logical_not(fits)


def row_norms(values: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """Return the norms over ``axes`` in float64; the axes keep length 1."""
    squares = tf.square(tf.cast(values, tf.float64))
    return tf.sqrt(tf.reduce_sum(squares, list(axes), keepdims=True))


def scaled(values: tf.Tensor, factors: tf.Tensor, wide: tf.DType) -> tf.Tensor:
    """Return w times f, computed in ``wide``."""
    return tf.cast(tf.cast(values, wide) * tf.cast(factors, wide), values.dtype)
