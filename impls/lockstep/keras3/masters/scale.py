"""What the masters' wrapper asks of a loss scale, whichever kind it was given."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from lockstep.keras3.base.gradients import name_of
from lockstep.keras3.scaling.loss_scale import DynamicLossScale, LossScale
from lockstep.keras3.scaling.loss_scaler import AutomaticLossScaler
from lockstep.keras3.scaling.skipping import Pairs
from lockstep.messages.masters import mixed_precision as words
from lockstep.messages.masters import refusals
from lockstep.quirks import Quirks
from lockstep.tf.shared.masters.casts import widen
from lockstep.tf.shared.scaling.verdict import Verdict, judge

__all__ = ["Scale", "current", "is_at_floor", "judge_for", "move", "scale_of", "state"]

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


def state(scale: Scale) -> list[keras.Variable]:
    """Return the variables of a scale; a number has none."""
    if isinstance(scale, AutomaticLossScaler):
        return list(scale.state.values())
    return scale.variables if isinstance(scale, LossScale) else []


def current(scale: Scale, quirks: Quirks) -> tf.Tensor:
    """Return the scale of the next step: float32, 0-d."""
    if isinstance(scale, AutomaticLossScaler):
        return scale.loss_scale
    if isinstance(scale, LossScale) and not quirks.masters_scale_type:
        return scale()
    if not isinstance(scale, float):
        raise refusals.UNUSABLE.error(loss_scale=scale)
    return tf.constant(scale, tf.float32)


def is_at_floor(scale: Scale) -> tf.Tensor:
    """Whether no overflow can make the scale smaller: bool, 0-d."""
    return tf.constant(True) if isinstance(scale, float) else scale.at_floor()


def judge_for(
    scale: Scale, stored: Pairs, summed: Pairs, clip_norm: float | None, quirks: Quirks
) -> Verdict:
    """Look at the gradients of a step, and for what the scale wants to know.

    By default any overflow is one for an automatic scaler too, also where duplicate
    rows overflow when they are ``summed``, or the norm does; a step without any element
    has none. Strict: it decides by the largest element as it is ``stored``.
    """
    names = [name_of(variable) for g, variable in stored if g is not None]
    present = [getattr(g, "values", g) for g, _ in summed if g is not None]
    verdict = judge(present, names, clip_norm)
    if not isinstance(scale, AutomaticLossScaler):
        return verdict
    if quirks.masters_static_scale:
        has_nan, amax = scale.check_grads(stored)
        overflow = tf.logical_or(has_nan, tf.math.is_inf(amax))
        return verdict._replace(finite=tf.logical_not(overflow), shown=(has_nan, amax))
    wide = [(None if g is None else widen(g), v) for g, v in stored]
    has_nan, amax = scale.check_grads(wide)
    amax = tf.clip_by_value(amax, 0.0, tf.float32.max)
    amax = tf.where(verdict.finite, amax, float("inf"))
    return verdict._replace(shown=(has_nan, amax))


def move(scale: Scale, verdict: Verdict) -> None:
    """Let a scale take note of one step."""
    if isinstance(scale, AutomaticLossScaler):
        assert verdict.shown is not None
        scale.update_op(*verdict.shown)
    elif isinstance(scale, LossScale):
        scale.move(verdict.finite)
