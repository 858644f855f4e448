"""Convert each kind of scale that the masters' wrapper accepts to a loss scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lockstep.messages.base import checkpoints as saved_states
from lockstep.messages.base import refusals as base_refusals
from lockstep.messages.masters import mixed_precision as words
from lockstep.messages.masters import refusals
from lockstep.pytorch.base.trial_step import number_in
from lockstep.pytorch.scaling.automatic_scaler import AutomaticLossScaler
from lockstep.pytorch.scaling.loss_scale import DynamicLossScale, LossScale
from lockstep.pytorch.tensors.rounding import rounded
from lockstep.quirks import quirks_of

__all__ = ["AutomaticScale", "StaticScale", "UnusableScale", "scale_of"]

PREFIX = "loss_scaler_"
"""Of the keys of an automatic scaler's numbers in ``param_groups[0]``."""


class StaticScale(LossScale):
    """A constant number, which may be below 1."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def value(self) -> float:
        """Return the number in float32."""
        return rounded(self.number, torch.float32)

    def may_be_below_one(self) -> bool:
        """Whether dividing by the scale may make gradients larger."""
        return self.number < 1

    def get_config(self) -> dict[str, Any]:
        """Return what ``loss_scale`` was."""
        return {"number": self.number}


class AutomaticScale(LossScale):
    """An automatic scaler, whose counts are stored in the optimizer's group.

    ``amax`` is the largest magnitude of the unscaled gradients of the next step.
    """

    amax = 0.0

    def __init__(self, scaler: AutomaticLossScaler) -> None:
        super().__init__()
        self.scaler = scaler
        self.keys = tuple(PREFIX + name for name in scaler.state)
        self._publish()

    @property
    def state(self) -> dict[str, float | int]:
        """All that changes: name -> Python number."""
        return self.scaler.state

    @property
    def needs_amax(self) -> bool:
        """Whether the scale depends on the largest gradient, not only on overflows."""
        return self.scaler.algorithm == "logmax"

    def value(self) -> float:
        """Return the current scale as a number that float32 can hold."""
        return float(self.state["loss_scale"])

    def may_be_below_one(self) -> bool:
        """Whether dividing by the scale may make gradients larger."""
        return self.scaler.policy.scale_min < 1

    def move(self, finite: Any) -> None:
        """Update the scale after a step."""
        self.scaler.update_op(not finite, self.amax if finite else math.inf)
        self._publish()

    def counts_for_another(self, group: dict[str, Any]) -> bool:
        """Whether another optimizer updates the scaler already."""
        return self.scaler.is_taken

    def check_saved(self, owner: str, group: Mapping[str, Any]) -> None:
        """Raise unless these are numbers of the same algorithm."""
        unchecked = quirks_of(self.scaler.strict).arguments_unchecked
        saved = {k: group[PREFIX + k] for k in self.state if PREFIX + k in group}
        for key, now in self.state.items() if saved else ():
            value = saved.get(key)
            saved_states.check_number(owner, PREFIX + key, value)
            must_be_finite = isinstance(now, int) or not unchecked
            if must_be_finite and not math.isfinite(value):
                raise base_refusals.SAVED_NUMBER.error(
                    owner=owner, key=PREFIX + key, value=value
                )
        if saved:
            self.scaler.check_state(saved)

    def live_in(self, group: dict[str, Any]) -> None:
        """Use the numbers in a group, if they are of this algorithm."""
        if all(key in group for key in self.keys):
            saved = {
                key.removeprefix(PREFIX): number_in(group[key]) for key in self.keys
            }
            self.scaler.load_state_dict(saved)
        self.numbers, self.scaler.is_taken = group, True
        self._publish()

    def _publish(self) -> None:
        self.numbers.update(zip(self.keys, self.state.values(), strict=True))

    def at_floor(self) -> bool:
        """Whether an overflow leaves the scale where it is."""
        return self.value() <= float(np.float32(self.scaler.policy.scale_min))

    def get_config(self) -> dict[str, Any]:
        """Return what ``loss_scale`` was."""
        return {"scaler": self.scaler}


class UnusableScale(LossScale):
    """A scale that the original accepts but cannot use."""

    def __init__(self, given: Any) -> None:
        super().__init__()
        self.given = given

    def value(self) -> float:
        """Raise."""
        raise refusals.UNUSABLE.error(loss_scale=self.given)

    def get_config(self) -> dict[str, Any]:
        """Return what ``loss_scale`` was."""
        return {"given": self.given}


def scale_of(loss_scale: Any, takes_any: bool) -> LossScale:
    """Return ``loss_scale`` as a loss scale object.

    With ``takes_any``, any object is accepted, and an unusable one raises when it is
    used.

    Raises:
        ValueError: an unknown string or type, or a number out of range.
    """
    if isinstance(loss_scale, AutomaticLossScaler):
        return AutomaticScale(loss_scale)
    number = words.scale_number(loss_scale, takes_any)
    if number is not None:
        return StaticScale(number)
    if takes_any:
        return UnusableScale(loss_scale)
    if isinstance(loss_scale, str) and loss_scale == "dynamic":
        return DynamicLossScale()
    if isinstance(loss_scale, LossScale):
        return loss_scale
    raise refusals.BAD_LOSS_SCALE.error(loss_scale=loss_scale)
