"""NovoGrad's rule before the momentum, for TensorFlow and Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def wide_dtype(dtype: tf.DType) -> tf.DType:
    """Return the dtype in which norms are computed: at least float32."""
    return tf.float64 if dtype.base_dtype == tf.float64 else tf.float32


def square_norm(gradient: tf.Tensor) -> tf.Tensor:
    """Return |g|^2 in :func:`wide_dtype`: 0-d."""
    return tf.reduce_sum(tf.square(tf.cast(gradient, wide_dtype(gradient.dtype))))


def next_moment(beta2: Any, moment: Any, square: tf.Tensor) -> tf.Tensor:
    """Return v after a step; it restarts with |g|^2 where it is 0 or not finite."""
    moment = tf.convert_to_tensor(moment)
    begun = tf.logical_and(moment > 0, tf.math.is_finite(moment))
    return tf.where(begun, average(beta2, moment, square), square)


def average(beta2: Any, moment: tf.Tensor, square: tf.Tensor) -> tf.Tensor:
    """Return b2 v + (1 - b2) |g|^2."""
    kept, added = (tf.cast(share, square.dtype) for share in (beta2, 1 - beta2))
    return moment * kept + square * added


def direction_of(
    arguments: Mapping[str, Any],
    moment: tf.Tensor,
    variable: tf.Tensor | tf.Variable,
    gradient: tf.Tensor,
    decays: bool = True,
) -> tf.Tensor:
    """Return g' = (g (1 / sqrt(v + eps)) + wd w) share, in the dtype of norms.

    ``arguments`` are the constructor's. The share is 1, or 1 - b1 if g' is averaged.
    """
    wide, decay = moment.dtype, arguments["weight_decay"]
    factor = 1.0 / tf.sqrt(moment + tf.cast(arguments["epsilon"], wide))
    direction = tf.cast(gradient, wide) * factor
    if decays and (tf.is_tensor(decay) or decay > 0):
        direction += tf.cast(decay, wide) * tf.cast(variable, wide)
    share = 1 - arguments["beta1"] if arguments["grad_averaging"] else 1.0
    return direction * tf.cast(share, wide)
