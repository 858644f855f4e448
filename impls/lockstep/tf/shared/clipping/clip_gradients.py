"""Clipping by the global norm of all gradients that are not None."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

import numpy as np
import tensorflow as tf

from lockstep.messages import multitask as words
from lockstep.messages import tf as tf_host
from lockstep.messages.base.pairs import refuse_complex, refuse_integers
from lockstep.quirks import Quirks, quirks_of
from lockstep.tf.shared.gradients import summed_values

__all__ = [
    "clip",
    "clip_factor",
    "global_norm",
    "half_square_sums",
    "limited",
    "refuse_dtypes",
    "scale_gradients",
]

Gradient = tf.Tensor | tf.IndexedSlices | None


def global_norm(
    gradients: Sequence[tf.Tensor | tf.IndexedSlices], dtype: tf.DType
) -> tf.Tensor:
    """Return the global norm of the gradients, computed in ``dtype``.

    Computed as in ``tf.linalg.global_norm``: sum(g^2) / 2 per tensor, with duplicate
    rows summed first, then sqrt(2 sum). Without gradients the norm is 0. A gradient
    that is all zero adds 0, so it need not be excluded.
    """
    total = tf.reduce_sum(half_square_sums(gradients, dtype))
    return tf.sqrt(total * tf.constant(2, dtype), name="global_norm")


def clip(
    gradients: Sequence[Gradient],
    clip_norm: float,
    error_if_nonfinite: bool,
    strict: bool,
) -> tuple[list[Gradient], tf.Tensor]:
    """Return gradients whose global norm is at most ``clip_norm``, and the norm.

    s = clip_norm min(1 / norm, 1 / clip_norm); each g becomes g s. Strict: computed in
    the gradients' dtype; all gradients must be dense and have the same dtype. In a
    graph, strict also names the results as the original does.
    """
    quirks = quirks_of(strict)
    present = [gradient for gradient in gradients if gradient is not None]
    check_clipping(present, clip_norm, quirks)
    own = quirks.multitask_clip_float16 and present
    dtype = present[0].dtype if own else tf.float32
    with tf.name_scope("global_norm"):
        norm = global_norm(present, dtype)
    if error_if_nonfinite:
        norm = require_finite(norm)
    with tf.name_scope(words.SCOPE) as scope:
        clipped = scale_gradients(gradients, clip_factor(norm, clip_norm))
        return (old_names(clipped, scope) if strict else clipped), norm


def check_clipping(
    present: Sequence[tf.Tensor | tf.IndexedSlices], clip_norm: float, quirks: Quirks
) -> None:
    """Raise for gradients that cannot be clipped, or for an invalid ``clip_norm``."""
    if quirks.multitask_clip_sparse:
        words.refuse_sparse(any(isinstance(g, tf.IndexedSlices) for g in present))
    if quirks.multitask_clip_dtypes:
        words.refuse_mixed_dtypes([gradient.dtype.name for gradient in present])
    if quirks.multitask_clip_range:
        words.check_clip_kind(clip_norm)
    else:
        words.check_clip_norm(clip_norm)
    if not quirks.multitask_clip_dtypes:
        refuse_dtypes(present)


def refuse_dtypes(gradients: Sequence[Gradient]) -> None:
    """Raise for integer and complex gradients."""
    dtypes = [gradient.dtype.name for gradient in gradients if gradient is not None]
    refuse_integers(words.CLIP, dtypes)
    refuse_complex(words.CLIP, dtypes)


def old_names(clipped: Sequence[Gradient], scope: str) -> list[Gradient]:
    """Return the gradients; in a graph, named as the original names them."""
    if tf.executing_eagerly():
        return list(clipped)
    return [
        gradient
        if gradient is None
        else tf.identity(gradient, f"{scope[:-1]}/_{place}")
        for place, gradient in enumerate(clipped)
    ]


def require_finite(norm: tf.Tensor) -> tf.Tensor:
    """Return ``norm`` if it is finite; otherwise raise, now or when the graph runs."""
    finite = tf.math.is_finite(norm)
    if tf.executing_eagerly():
        if not finite:
            raise words.NONFINITE_NORM.error(norm=float(norm))
        return norm
    with tf.control_dependencies([tf.Assert(finite, [tf_host.NONFINITE_NORM, norm])]):
        return tf.identity(norm)


def half_square_sums(
    gradients: Sequence[tf.Tensor | tf.IndexedSlices], dtype: tf.DType
) -> tf.Tensor:
    """Return sum(g^2) / 2 of n gradients, duplicate rows summed first: [n]."""
    if not gradients:
        return tf.zeros([0], dtype)
    values = [tf.cast(summed_values(gradient), dtype) for gradient in gradients]
    return tf.stack([tf.nn.l2_loss(value) for value in values])


def clip_factor(norm: tf.Tensor, clip_norm: float) -> tf.Tensor:
    """Return the factor for ``norm``; NaN if the norm is not finite."""
    limit = limit_in(norm.dtype, clip_norm)
    # A constant NaN would stop a program under tf.debugging.enable_check_numerics.
    nan = tf.abs(norm - norm)
    return tf.where(tf.math.is_finite(norm), limited(norm, limit), nan)


def limited(norm: tf.Tensor, limit: tf.Tensor) -> tf.Tensor:
    """Return limit min(1 / norm, 1 / limit), without an infinity for a norm of 0."""
    divisor = tf.where(tf.equal(norm, 0), limit, norm)
    return limit * tf.minimum(1 / divisor, 1 / limit)


def limit_in(dtype: tf.DType, clip_norm: float | tf.Tensor) -> tf.Tensor:
    """Return ``clip_norm`` rounded once to ``dtype``; infinite if it is too large.

    Eager TensorFlow 2 raises for a number that is too large. The original did not.
    """
    if isinstance(clip_norm, Real):
        with np.errstate(over="ignore"):
            clip_norm = np.asarray(clip_norm).astype(dtype.as_numpy_dtype)
    return tf.cast(clip_norm, dtype)


def scale_gradients(gradients: Sequence[Gradient], factor: tf.Tensor) -> list[Gradient]:
    """Return the gradients times ``factor``, in their own dtypes."""
    return [None if g is None else scale_gradient(g, factor) for g in gradients]


def scale_gradient(
    gradient: tf.Tensor | tf.IndexedSlices, factor: tf.Tensor
) -> tf.Tensor | tf.IndexedSlices:
    """Return a gradient times ``factor``; a sparse one keeps its indices."""
    if isinstance(gradient, tf.IndexedSlices):
        scaled = scale_gradient(gradient.values, factor)
        return tf.IndexedSlices(scaled, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)
