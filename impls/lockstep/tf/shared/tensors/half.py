"""Casts between half-precision variables and their float32 masters."""

from __future__ import annotations

import tensorflow as tf

from lockstep.messages.masters.mixed_precision import LARGEST

__all__ = ["follow", "saturating_cast"]


def saturating_cast(values: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Round float32 ``values`` to ``dtype``, clamped to its largest magnitude.

    float16: max(min(w, 65504), -65504), then rounded to nearest. NaN remains NaN.
    """
    largest = tf.constant(LARGEST[dtype.name], values.dtype)
    return tf.cast(tf.clip_by_value(values, -largest, largest), dtype)


def follow(master: tf.Tensor, model: tf.Tensor) -> tf.Tensor:
    """Return the current master of ``model``: float32, the shape of both.

    An element of ``master`` is kept if it rounds to the element of ``model``.
    Otherwise the model was changed from outside, and the result is float32(model).
    """
    rounded = saturating_cast(master, model.dtype)
    both_nan = tf.logical_and(tf.math.is_nan(rounded), tf.math.is_nan(model))
    same = tf.logical_or(tf.equal(rounded, model), both_nan)
    return tf.where(same, master, tf.cast(model, tf.float32))
