"""What the masters' wrapper asks of a loss scale, whichever kind it was given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lockstep.pytorch.automatic_scaler import AutomaticLossScaler
from lockstep.pytorch.loss_scale import NUMBERS, DynamicLossScale, LossScale
from lockstep.spec import mixed_precision as words

__all__ = [
    "Scale",
    "current",
    "move",
    "numbers_of",
    "restore",
    "scale_of",
    "wants_amax",
]

Scale = float | AutomaticLossScaler | LossScale

PREFIX = "loss_scaler_"
"""Of the keys of an automatic scaler's numbers in ``param_groups[0]``."""


def scale_of(loss_scale: Any, strict: bool) -> Any:
    """Return the number or object that ``loss_scale`` stands for.

    Strict: anything at all; what cannot be used fails when it is.

    Raises:
        ValueError: another string or type, a number out of range.
    """
    if isinstance(loss_scale, AutomaticLossScaler):
        return loss_scale
    number = words.scale_number(loss_scale, strict)
    if number is not None or strict:
        return loss_scale if number is None else number
    if isinstance(loss_scale, str) and loss_scale == "dynamic":
        return DynamicLossScale()
    if isinstance(loss_scale, LossScale):
        return loss_scale
    raise words.bad_loss_scale(loss_scale)


def current(scale: Scale) -> float:
    """Return the scale as a number that float32 can hold."""
    if isinstance(scale, AutomaticLossScaler):
        return float(scale.state["loss_scale"])
    if isinstance(scale, LossScale):
        return scale.value()
    if not isinstance(scale, float):
        raise words.unusable(scale)
    with np.errstate(over="ignore"):
        return float(np.float32(scale))


def wants_amax(scale: Scale) -> bool:
    """Say whether the scale must know the largest gradient, not only overflows."""
    return isinstance(scale, AutomaticLossScaler) and scale.algorithm == "logmax"


def move(scale: Scale, finite: bool, amax: float) -> None:
    """Let a scale take note of one step."""
    if isinstance(scale, AutomaticLossScaler):
        scale.update_op(not finite, amax if finite else math.inf)
    elif isinstance(scale, LossScale):
        scale.move(finite)


def numbers_of(scale: Scale) -> dict[str, float | int]:
    """Return what changes, as plain numbers under the keys of a group."""
    if isinstance(scale, AutomaticLossScaler):
        return {PREFIX + name: value for name, value in scale.state.items()}
    if isinstance(scale, LossScale):
        return {key: scale.numbers[key] for key in NUMBERS if key in scale.numbers}
    return {}


def restore(scale: Scale, group: dict[str, Any]) -> None:
    """Go on from the numbers in a group, if they are those of this kind of scale."""
    keys = numbers_of(scale).keys()
    if not keys <= group.keys():
        return
    if isinstance(scale, AutomaticLossScaler):
        scale.load_state_dict({key.removeprefix(PREFIX): group[key] for key in keys})
    elif isinstance(scale, LossScale):
        scale.numbers.update({key: group[key] for key in keys})
