"""Every kind of scale that the masters' wrapper takes, as a loss scale."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from lockstep.messages.masters import mixed_precision as words
from lockstep.messages.masters import refusals
from lockstep.quirks import Quirks
from lockstep.tf.scaling.loss_scale import DynamicLossScale, LossScale
from lockstep.tf.scaling.loss_scaler import AutomaticLossScaler

__all__ = ["as_loss_scale", "scale_of"]


class StaticScale(LossScale):
    """Any number, one below 1 included; it is always at its floor."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def __call__(self) -> tf.Tensor:
        """Return the number: float32, 0-d."""
        return tf.constant(self.number, tf.float32)


class AutomaticScale(LossScale):
    """An automatic scaler, which is moved by more than whether a step is finite."""

    def __init__(self, scaler: AutomaticLossScaler) -> None:
        super().__init__()
        self.scaler = scaler

    def __call__(self) -> tf.Tensor:
        """Return the scale of the next step: float32, 0-d."""
        return self.scaler.loss_scale

    def at_floor(self) -> tf.Tensor:
        """Whether no overflow can make the scale smaller: bool, 0-d."""
        return self.scaler.at_floor()


class UnusableScale(LossScale):
    """What the original accepts as a scale, and then cannot use."""

    def __init__(self, argument: Any) -> None:
        super().__init__()
        self.argument = argument

    def __call__(self) -> tf.Tensor:
        """Raise."""
        raise refusals.UNUSABLE.error(loss_scale=self.argument)


def scale_of(loss_scale: Any, quirks: Quirks) -> Any:
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


def as_loss_scale(scale: Any, quirks: Quirks) -> LossScale:
    """Return what :func:`scale_of` returned as a loss scale."""
    if isinstance(scale, AutomaticLossScaler):
        return AutomaticScale(scale)
    if isinstance(scale, float):
        return StaticScale(scale)
    if isinstance(scale, LossScale) and not quirks.masters_scale_type:
        return scale
    return UnusableScale(scale)
