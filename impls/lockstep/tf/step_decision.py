"""What becomes of the gradients of a step: moved scale, verdict, clipping."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from lockstep.spec import mixed_precision as words
from lockstep.tf.core.clip_gradients import clip_factor, global_norm, scale_gradients
from lockstep.tf.core.finite import finite_flags
from lockstep.tf.core.masters import widen
from lockstep.tf.loss_scale import DynamicLossScale, LossScale
from lockstep.tf.loss_scaler import AutomaticLossScaler
from lockstep.tf.pairs import Pairs

__all__ = ["Scale", "clip_pairs", "decide", "scale_of"]

Scale = Any
"""A float, an AutomaticLossScaler or a LossScale; strict: anything, as the original."""

Decision = tuple[Any, tf.Tensor]


def scale_of(loss_scale: Any, strict: bool) -> Scale:
    """Return the float or object that ``loss_scale`` stands for.

    Raises:
        OutOfRangeError, UnknownNameError: a ValueError; by default, anything else.
    """
    if isinstance(loss_scale, AutomaticLossScaler | LossScale):
        return loss_scale
    if isinstance(loss_scale, str) and loss_scale == "dynamic" and not strict:
        return DynamicLossScale()
    number = words.scale_number(loss_scale, strict)
    if number is None and not strict:
        raise words.bad_loss_scale(loss_scale)
    return loss_scale if number is None else number


def decide(
    scale: Scale, pairs: Pairs, norm: tf.Tensor | None, strict: bool
) -> Decision:
    """Move the scale by one step: the operation, and whether to apply the gradients.

    They are applied if every element is finite and, where it was asked for, the global
    norm too.
    """
    if isinstance(scale, AutomaticLossScaler):
        moved, should_apply = decide_by_largest(scale, pairs, strict)
    else:
        moved, should_apply = decide_by_flags(scale, pairs)
    if norm is not None:
        should_apply = tf.logical_and(should_apply, tf.math.is_finite(norm))
    return moved, should_apply


def decide_by_largest(
    scale: AutomaticLossScaler, pairs: Pairs, strict: bool
) -> Decision:
    """Show a scaler the largest element; NaN and infinity forbid the step.

    By default also where they come from summing the duplicate rows of a sparse
    gradient, and a step without any element is finite.
    """
    if not strict:
        pairs = [(None if g is None else widen(g), v) for g, v in pairs]
    has_nan, amax = scale.check_grads(pairs)
    if not strict:
        amax = tf.maximum(amax, 0.0)
    should_apply = tf.logical_not(tf.logical_or(has_nan, tf.math.is_inf(amax)))
    if not strict:
        rows = [g for g, _ in pairs if isinstance(g, tf.IndexedSlices)]
        should_apply = tf.logical_and(should_apply, tf.reduce_all(finite_flags(rows)))
    return scale.update_op(has_nan, amax), should_apply


def decide_by_flags(scale: float | LossScale, pairs: Pairs) -> Decision:
    """Let a loss scale move; apply what is finite."""
    gradients = [gradient for gradient, _ in pairs]
    moved, should_apply = tf.no_op(), tf.constant(True)
    if isinstance(scale, LossScale):
        moved, should_apply = scale.update(gradients)
    if isinstance(scale, DynamicLossScale):
        return moved, should_apply
    present = [gradient for gradient in gradients if gradient is not None]
    finite = tf.reduce_all(finite_flags(present))
    return moved, tf.logical_and(should_apply, finite)


def clip_pairs(pairs: Pairs, clip_norm: float | None) -> tuple[Pairs, tf.Tensor | None]:
    """Scale gradients down to a global norm; those below it stay to the bit."""
    if clip_norm is None:
        return pairs, None
    gradients = [gradient for gradient, _ in pairs]
    present = [gradient for gradient in gradients if gradient is not None]
    norm = global_norm(present, tf.float32)
    factor = tf.where(norm > clip_norm, clip_factor(norm, clip_norm), 1.0)
    scaled = scale_gradients(gradients, factor)
    return [(g, v) for g, (_, v) in zip(scaled, pairs, strict=True)], norm
