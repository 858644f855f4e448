"""What the masters' wrapper asks of a loss scale, whichever kind it was given."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from lockstep.messages.masters import mixed_precision as words
from lockstep.messages.masters import refusals
from lockstep.quirks import Quirks
from lockstep.tf.base.pairs import Pairs, name_of
from lockstep.tf.scaling.loss_scale import DynamicLossScale, LossScale
from lockstep.tf.scaling.loss_scaler import AutomaticLossScaler
from lockstep.tf.shared.masters.casts import widen
from lockstep.tf.shared.scaling.verdict import Verdict, judge

__all__ = ["Scale", "current", "is_at_floor", "judge_for", "move", "scale_of"]

Scale = Any
"""A float, an AutomaticLossScaler or a LossScale; strict: anything, as the original."""


def scale_of(loss_scale: Any, quirks: Quirks) -> Scale:
    """Return the float or object that ``loss_scale`` stands for.

    Raises:
        OutOfRangeError, UnknownNameError: a ValueError; by default, anything else.
    """
    if isinstance(loss_scale, AutomaticLossScaler | LossScale):
        return loss_scale
    anything = quirks.masters_scale_type
    if isinstance(loss_scale, str) and loss_scale == "dynamic" and not anything:
        return DynamicLossScale()
    number = words.scale_number(loss_scale, anything)
    if number is None and not anything:
        raise refusals.BAD_LOSS_SCALE.error(loss_scale=loss_scale)
    return loss_scale if number is None else number


def current(scale: Scale, quirks: Quirks) -> float | tf.Tensor:
    """Return the scale of the next step: a float if it is a number."""
    if isinstance(scale, AutomaticLossScaler):
        return scale.loss_scale
    if isinstance(scale, LossScale) and not quirks.masters_scale_type:
        return scale()
    if not isinstance(scale, float):
        raise refusals.UNUSABLE.error(loss_scale=scale)
    return scale


def is_at_floor(scale: Scale) -> tf.Tensor:
    """Whether no overflow can make the scale smaller: bool, 0-d."""
    return tf.constant(True) if isinstance(scale, float) else scale.at_floor()


def judge_for(
    scale: Scale, pairs: Pairs, clip_norm: float | None, quirks: Quirks
) -> Verdict:
    """Look at the gradients of a step, and for what the scale wants to know.

    By default any overflow is one for an automatic scaler too, also where duplicate
    rows overflow when they are summed, or the norm does; a step without any element has
    none. Strict: it decides by the largest element as it is stored.
    """
    present = [gradient for gradient, _ in pairs if gradient is not None]
    names = [name_of(variable) for g, variable in pairs if g is not None]
    verdict = judge(present, names, clip_norm)
    if not isinstance(scale, AutomaticLossScaler):
        return verdict
    if quirks.masters_static_scale:
        has_nan, amax = scale.check_grads(pairs)
        overflow = tf.logical_or(has_nan, tf.math.is_inf(amax))
        return verdict._replace(finite=tf.logical_not(overflow), shown=(has_nan, amax))
    wide = [(None if g is None else widen(g), v) for g, v in pairs]
    has_nan, amax = scale.check_grads(wide)
    amax = tf.clip_by_value(amax, 0.0, tf.float32.max)
    amax = tf.where(verdict.finite, amax, float("inf"))
    return verdict._replace(shown=(has_nan, amax))


def move(scale: Scale, verdict: Verdict) -> Any:
    """Let a scale take note of one step; return the operation."""
    if isinstance(scale, AutomaticLossScaler):
        assert verdict.shown is not None
        return scale.update_op(*verdict.shown)
    if isinstance(scale, LossScale):
        return scale.move(verdict.finite)
    return tf.no_op()
