"""Finite checks of gradients, and division by a loss scale."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from lockstep.tf.shared.tensors.gradients import summed_values

__all__ = ["divided", "finite_flags", "times"]

INVERTIBLE = 2.0**126
"""The reciprocal of a larger float32 is subnormal; kernels flush it to zero."""


def finite_flags(gradients: Sequence[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor:
    """Return whether every element of each of n gradients is finite: bool, [n].

    Duplicate rows of a sparse gradient are summed first.
    """
    if not gradients:
        return tf.ones([0], tf.bool)
    flags = [
        tf.reduce_all(tf.math.is_finite(summed_values(gradient)))
        for gradient in gradients
    ]
    return tf.stack(flags)


def divided(values: Sequence[tf.Tensor], scale: float | tf.Tensor) -> list[tf.Tensor]:
    """Return v (1/s) of each value, rounded once to its dtype; v / s if s > 2^126."""
    reciprocal = 1.0 / scale

    def over(value: tf.Tensor) -> tf.Tensor:
        wide = tf.float64 if value.dtype == tf.float64 else tf.float32
        return tf.cast(tf.cast(value, wide) / tf.cast(scale, wide), value.dtype)

    quotients = tf.cond(
        tf.convert_to_tensor(scale > INVERTIBLE),
        lambda: [over(value) for value in values],
        lambda: [times(value, reciprocal) for value in values],
    )
    return list(tf.nest.flatten(quotients))


def times(values: tf.Tensor, reciprocal: tf.Tensor) -> tf.Tensor:
    """Return values times the float32 reciprocal, rounded once to their dtype."""
    wide = tf.float64 if values.dtype == tf.float64 else tf.float32
    product = tf.cast(values, wide) * tf.cast(reciprocal, wide)
    return tf.cast(product, values.dtype)
