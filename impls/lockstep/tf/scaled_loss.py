"""A loss times a scale, and its gradients divided by it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lockstep.spec import loss_scaling as words
from lockstep.tf.core.clip_rows import as_tensor
from lockstep.tf.core.finite import times
from lockstep.tf.pairs import Gradient, name_of

__all__ = ["refuse_half", "scaled", "unscaled"]


def scaled(
    loss: Any, scale: float | tf.Tensor, check: Callable[[tf.DType], None]
) -> Any:
    """Return ``loss`` times the scale in its dtype; a callable becomes another one.

    ``check`` raises for a dtype of the loss that is refused.
    """
    if callable(loss):
        return lambda: scaled(tf.convert_to_tensor(loss()), scale, check)
    loss = tf.convert_to_tensor(loss)
    check(loss.dtype)
    return loss * as_tensor(scale, loss.dtype)


def unscaled(
    gradient: Gradient, variable: Any, reciprocal: tf.Tensor, strict: bool
) -> Gradient:
    """Return g (1/s), half precision by way of float32; absent stays absent."""
    if gradient is None:
        return None
    refuse_half(repr(name_of(variable)), strict, gradient.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        values = times(gradient.values, reciprocal)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return times(gradient, reciprocal)


def refuse_half(what: str, strict: bool, dtype: tf.DType) -> None:
    """Strict: raise for what the original's float32 scale cannot multiply.

    # Quirk: docs/differences.md#loss-scale-float16
    """
    if strict and dtype.base_dtype != tf.float32:
        raise words.half_precision(what)
