"""LARC on tensors and slices."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from lockstep.messages.clipping.larc import LarcPolicy
from lockstep.messages.masters.mixed_precision import LARGEST
from lockstep.tf.shared.gradients import saturating_cast, summed_values

__all__ = ["as_original", "larc_ratio", "raw_ratio", "scale_by_ratio", "tensor_norms"]

Gradient = tf.Tensor | tf.IndexedSlices


def tensor_norms(tensors: Sequence[Gradient]) -> tf.Tensor:
    """Return the 2-norms of n tensors, duplicate rows summed first, in float32: [n]."""
    values = [tf.cast(summed_values(tensor), tf.float32) for tensor in tensors]
    return tf.sqrt(tf.stack([tf.reduce_sum(tf.square(value)) for value in values]))


def raw_ratio(
    policy: LarcPolicy, rate: tf.Tensor, weight: tf.Tensor, gradient: tf.Tensor
) -> tf.Tensor:
    """Return the raw ratios: float32, [n].

    The formula is in :func:`lockstep.reference.clipping.larc.raw_ratio`. Here the
    norms have shape [n] and the rate is 0-d.
    """
    divisor = gradient + policy.epsilon
    still = tf.logical_or(tf.equal(weight, 0.0), tf.equal(gradient, 0.0))
    if policy.mode == "clip":
        divisor = rate * divisor
        still = tf.logical_or(still, tf.equal(rate, 0.0))
    if not policy.guarded:
        return tf.maximum(policy.eta * weight / divisor, policy.min_update)
    alone = tf.logical_and(still, tf.math.is_finite(weight + gradient))
    # Division by 0 would stop a program under tf.debugging.enable_check_numerics.
    one = tf.constant(1.0)
    divisor = tf.where(alone, one, divisor)
    ratio = tf.maximum(policy.eta * weight / divisor, policy.min_update)
    return tf.where(alone, one, ratio)


def larc_ratio(policy: LarcPolicy, raw: tf.Tensor) -> tf.Tensor:
    """Return the ratios; in mode "clip" at most 1."""
    return tf.minimum(raw, 1.0) if policy.mode == "clip" else raw


def scale_by_ratio(gradient: Gradient, ratio: tf.Tensor) -> Gradient:
    """Return a gradient times its ratio, which :func:`cast_ratio` rounds."""
    if isinstance(gradient, tf.IndexedSlices):
        values = scale_by_ratio(gradient.values, ratio)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * cast_ratio(ratio, gradient.dtype)


def cast_ratio(ratio: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Round a ratio to ``dtype``; saturate in half precision."""
    halves = dtype.name in LARGEST
    return saturating_cast(ratio, dtype) if halves else tf.cast(ratio, dtype)


def as_original(gradient: Gradient, shape: tf.TensorShape) -> tf.Tensor:
    """Strict: convert slices to a dense tensor."""
    if isinstance(gradient, tf.IndexedSlices):
        rows = shape[0]
        return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, rows)
    return gradient
