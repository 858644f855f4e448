"""A loss times a scale, and its gradients divided by it again."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from lockstep.spec import loss_scaling as words
from lockstep.tf.core.finite import times
from lockstep.tf.pairs import Gradient, name_of

__all__ = ["scaled", "unscaled"]


def scaled(loss: Any, scale: tf.Tensor, strict: bool) -> Any:
    """Return ``loss`` times the scale; a callable becomes another one."""
    if callable(loss):
        return lambda: scaled(tf.convert_to_tensor(loss()), scale, strict)
    loss = tf.convert_to_tensor(loss)
    if strict:
        refuse_half("a loss", loss.dtype)
    return loss * tf.cast(scale, loss.dtype)


def unscaled(
    gradient: Gradient, variable: Any, reciprocal: tf.Tensor, strict: bool
) -> Gradient:
    """Return g (1/s), half precision by way of float32; absent stays absent."""
    if gradient is None:
        return None
    if strict:
        refuse_half(repr(name_of(variable)), gradient.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        values = times(gradient.values, reciprocal)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return times(gradient, reciprocal)


def refuse_half(what: str, dtype: tf.DType) -> None:
    """Raise for what the original's float32 scale cannot multiply.

    # Quirk: docs/differences.md#loss-scale-float16
    """
    if dtype.base_dtype != tf.float32:
        raise words.half_precision(what)
