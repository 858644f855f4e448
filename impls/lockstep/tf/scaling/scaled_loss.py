"""A loss times a scale, and its gradients divided by it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lockstep.messages.scaling import refusals
from lockstep.quirks import Quirks
from lockstep.tf.base.pairs import Gradient, Pairs
from lockstep.tf.shared.clipping.clip_rows import as_tensor
from lockstep.tf.shared.masters.casts import widen
from lockstep.tf.shared.tensors.finite import divided, times
from lockstep.tf.shared.tensors.gradients import with_values

__all__ = ["refuse_half", "scaled", "unscaled", "widened"]


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


def unscaled(pairs: Pairs, scale: float | tf.Tensor, quirks: Quirks) -> Pairs:
    """Return pairs of g (1/s), half precision by way of float32; None stays None.

    Strict: also where 1/s is a subnormal and so zero, above 2^126.
    """
    present = [gradient for gradient, _ in pairs if gradient is not None]
    values = [getattr(gradient, "values", gradient) for gradient in present]
    if quirks.multitask_subnormals:
        reciprocal = 1.0 / scale
        found = iter([times(value, reciprocal) for value in values])
    else:
        found = iter(divided(values, scale))
    return [(g if g is None else with_values(g, next(found)), v) for g, v in pairs]


def widened(gradient: Gradient) -> Gradient:
    """Return a gradient in float32 if it is in half precision."""
    if gradient is None or gradient.dtype not in (tf.float16, tf.bfloat16):
        return gradient
    return widen(gradient)


def refuse_half(what: str, dtype: tf.DType) -> None:
    """Raise for what the original's float32 scale cannot multiply."""
    if dtype.base_dtype != tf.float32:
        raise refusals.HALF_PRECISION.error(what=what)
