"""Clipping of rows: the 2-norm over some axes of a variable is held to a limit."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

__all__ = ["clip_rows", "excess", "normalize_rows", "row_norms"]

HALF = (tf.float16, tf.bfloat16)


def clip_rows(
    values: tf.Tensor, axes: Sequence[int], max_norm: float | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return ``values`` with each norm over ``axes`` at most ``max_norm``.

    n = sqrt(sum over axes of w^2); where n <= max_norm, w stays to the bit; elsewhere
    c = w max_norm / n and w' = w - (w - c), the original's order. Half precision is
    widened to float32 first and rounded once, at the end. A norm that is NaN makes its
    row NaN.

    Args:
        values: a variable, or [k, ...] rows of it; any shape.
        axes: distinct axes from 0 on; none takes the norm of each element.
        max_norm: the largest norm that is left as it is, > 0 and finite.

    Returns:
        The clipped values, and which norms were too large: bool, ``axes`` of length 1.
    """
    wide = tf.cast(values, tf.float32) if values.dtype in HALF else values
    fits = row_norms(wide, axes) <= as_tensor(max_norm, wide.dtype)
    clipped = tf.cast(wide - excess(wide, axes, max_norm), values.dtype)
    return tf.where(fits, values, clipped), tf.logical_not(fits)


def excess(
    values: tf.Tensor, axes: Sequence[int], max_norm: float | tf.Tensor
) -> tf.Tensor:
    """Return w - c, which the original subtracted from w.

    c is :func:`normalize_rows` in the dtype of ``values``, also below the norm.

    # Quirk: docs/differences.md#row-clip-below.
    """
    return values - normalize_rows(values, axes, max_norm)


def normalize_rows(
    values: tf.Tensor, axes: Sequence[int], max_norm: float | tf.Tensor
) -> tf.Tensor:
    """Return c = w max_norm / max(n, max_norm), n the norm over ``axes``."""
    limit = as_tensor(max_norm, values.dtype)
    return values * limit / tf.maximum(row_norms(values, axes), limit)


def row_norms(values: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """Return n = sqrt(sum over axes of w^2); summed ``axes`` keep length 1."""
    return tf.sqrt(tf.reduce_sum(tf.square(values), list(axes), keepdims=True))


def as_tensor(number: float | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Round a number to ``dtype`` once; cast a tensor."""
    if tf.is_tensor(number):
        return tf.cast(number, dtype)
    return tf.constant(number, dtype)
