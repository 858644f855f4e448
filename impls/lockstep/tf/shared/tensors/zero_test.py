"""The zero test of the multitask wrapper, for tensors and slices."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from lockstep.tf.shared.tensors.gradients import summed_values

__all__ = ["all_zero_flags", "is_all_zero", "some_may_be_zero"]


GLIMPSE = 64
"""Elements to look at first: nearly always enough to see a nonzero one."""


def is_all_zero(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    """Whether ``gradient`` has no nonzero element, duplicate rows summed: bool, 0-d.

    TensorFlow's kernels flush float32 and float64 subnormals, which so count as zero,
    by default too; float16 ones do not.
    """
    values = summed_values(gradient)
    return tf.reduce_all(tf.equal(values, tf.zeros((), values.dtype)))


def all_zero_flags(gradients: Sequence[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor:
    """Apply :func:`is_all_zero` to n gradients: bool, [n]."""
    return tf.stack([is_all_zero(gradient) for gradient in gradients])


def some_may_be_zero(gradients: Sequence[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor:
    """Say by a glimpse at each gradient whether some may be all zero: bool, 0-d.

    False is certain: every glimpse had an element whose square is not 0. True asks for
    :func:`all_zero_flags`, which reads every element.
    """
    flat = [tf.reshape(summed_values(gradient), [-1]) for gradient in gradients]
    squares = [tf.cast(tf.nn.l2_loss(value[:GLIMPSE]), tf.float32) for value in flat]
    return tf.reduce_any(tf.equal(tf.stack(squares), 0))
