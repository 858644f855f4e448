"""A loss times a scale, and its gradients divided by it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lockstep.keras3.base.gradients import Gradient, value_of
from lockstep.messages.scaling import refusals
from lockstep.tf.shared.tensors.finite import divided
from lockstep.tf.shared.tensors.gradients import with_values

__all__ = ["narrowed", "refuse_half", "scaled", "unscaled"]


def scaled(loss: Any, scale: tf.Tensor) -> tf.Tensor:
    """Return loss times scale; half precision by way of float32, where it fits."""
    loss = tf.convert_to_tensor(loss)
    loss = tf.cast(loss, tf.float32) if loss.dtype.size < 4 else loss
    return loss * tf.cast(scale, loss.dtype)


def unscaled(gradients: Sequence[Gradient], divisor: tf.Tensor) -> list[Gradient]:
    """Return each g (1/divisor), half precision by way of float32.

    Where the divisor is 1 nothing is read. What is absent stays absent.
    """
    present = [getattr(g, "values", g) for g in gradients if g is not None]
    values = tf.cond(
        tf.equal(divisor, 1.0),
        lambda: [tf.identity(value) for value in present],
        lambda: divided(present, divisor),
    )
    found = iter(tf.nest.flatten(values))
    return [None if g is None else with_values(g, next(found)) for g in gradients]


def narrowed(gradient: Gradient, variable: Any) -> Gradient:
    """Return a gradient that was unscaled by hand in the dtype of its variable."""
    dtype = value_of(variable).dtype
    if gradient is None or gradient.dtype == dtype or dtype.size > 2:
        return gradient
    values = tf.cast(getattr(gradient, "values", gradient), dtype)
    return with_values(gradient, values)


def refuse_half(what: str, dtype: tf.DType) -> None:
    """Raise for what the original's float32 scale cannot multiply."""
    if dtype.base_dtype != tf.float32:
        raise refusals.HALF_PRECISION.error(what=what)
