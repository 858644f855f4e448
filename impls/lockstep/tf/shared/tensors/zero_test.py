"""The zero test of the multitask wrapper, for tensors and slices."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from lockstep.tf.shared.tensors.gradients import summed_values

__all__ = ["all_zero_flags", "is_all_zero", "some_may_be_zero"]


GLIMPSE = 64
"""The number of elements to check first; nearly always one of them is nonzero."""


def is_all_zero(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    """Whether all elements of ``gradient`` are 0, duplicate rows summed: bool, 0-d.

    TensorFlow's kernels flush float32 and float64 subnormals to zero, so these count as
    zero, in the default mode too. float16 subnormals do not.
    """
    values = summed_values(gradient)
    return tf.reduce_all(tf.equal(values, tf.zeros((), values.dtype)))


def all_zero_flags(gradients: Sequence[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor:
    """Apply :func:`is_all_zero` to n gradients: bool, [n]."""
    return tf.stack([is_all_zero(gradient) for gradient in gradients])


def some_may_be_zero(gradients: Sequence[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor:
    """Return whether some gradients may be all zero, from a few elements: bool, 0-d.

    False is certain: each gradient has an element whose square is not 0. After True,
    call :func:`all_zero_flags`, which reads every element.
    """
    flat = [tf.reshape(real(summed_values(gradient)), [-1]) for gradient in gradients]
    squares = [tf.cast(tf.nn.l2_loss(value[:GLIMPSE]), tf.float32) for value in flat]
    return tf.reduce_any(tf.equal(tf.stack(squares), 0))


def real(values: tf.Tensor) -> tf.Tensor:
    """Return the real and imaginary parts of complex values; others unchanged."""
    is_complex = values.dtype.is_complex
    return tf.bitcast(values, values.dtype.real_dtype) if is_complex else values
