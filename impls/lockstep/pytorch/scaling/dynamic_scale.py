"""The dynamic loss scale, in Python numbers or in tensors on one device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lockstep.messages.scaling.loss_scale import DynamicPolicy

__all__ = [
    "DynamicState",
    "keeps_scale",
    "start_dynamic",
    "step_dynamic",
    "step_dynamic_on_device",
]


class DynamicState(NamedTuple):
    """The state between two steps: numbers, or 0-d tensors on one device.

    The names are those of
    :class:`lockstep.reference.scaling.dynamic_scale.DynamicState`.
    """

    loss_scale: float | Tensor
    good_steps: int | Tensor
    overflows: int | Tensor = 0
    steps: int | Tensor = 0


def start_dynamic(policy: DynamicPolicy) -> DynamicState:
    """Return the initial scale, with counts of 0."""
    with np.errstate(over="ignore"):
        return DynamicState(float(np.float32(policy.initial_loss_scale)), 0)


def keeps_scale(policy: DynamicPolicy, good_steps: int) -> bool:
    """Whether a finite step leaves the scale unchanged and only counts."""
    return good_steps + 1 < policy.increment_period


def step_dynamic(
    policy: DynamicPolicy, state: DynamicState, finite: bool
) -> DynamicState:
    """Return the next state; ``finite``: whether all gradients of the step are finite.

    The rule is that of :func:`lockstep.reference.scaling.dynamic_scale.step_dynamic`.
    """
    scale, good, overflows, steps = state
    if finite and keeps_scale(policy, good):
        return DynamicState(scale, good + 1, overflows, steps + 1)
    if finite:
        with np.errstate(all="ignore"):
            grown = np.float32(scale) * np.float32(policy.growth)
            grown = np.minimum(grown, np.float32(policy.ceiling))
        return DynamicState(float(grown) if np.isfinite(grown) else scale, 0)
    overflows, steps = overflows + 1, steps + 1
    if overflows < policy.hysteresis or overflows / steps < policy.tolerance:
        return DynamicState(scale, 0, overflows, steps)
    with np.errstate(all="ignore"):
        if policy.backoff_factor is None:
            smaller = np.float32(scale) / np.float32(policy.multiplier)
        else:
            smaller = np.float32(scale) * np.float32(policy.backoff_factor)
        smaller = np.maximum(smaller, np.float32(policy.floor))
    return DynamicState(float(smaller), 0, policy.hysteresis - 1)


def step_dynamic_on_device(
    policy: DynamicPolicy, state: DynamicState, finite: Tensor
) -> DynamicState:
    """Return the result of :func:`step_dynamic`, bit for bit, without a host sync.

    Everything is a 0-d tensor: the scale float32, the counters int64, ``finite`` bool.
    """
    scale, good, overflows, steps = state
    good, steps = good + 1, steps + 1
    overflows = overflows + ~finite
    grows = finite & (good >= policy.increment_period)
    grown = (scale * policy.growth).clamp(max=policy.ceiling)
    grown = torch.where(grown.isfinite(), grown, scale)
    enough = overflows.double() / steps >= policy.tolerance
    shrinks = ~finite & (overflows >= policy.hysteresis) & enough
    if policy.backoff_factor is None:
        # If the divisor were a number, a GPU would multiply by its rounded reciprocal.
        smaller = scale / scale.new_full((), policy.multiplier)
    else:
        smaller = scale * policy.backoff_factor
    smaller = torch.where(shrinks, smaller.clamp(min=policy.floor), scale)
    stays = ~(grows | shrinks)
    # Multiplied by flags, because torch.where would first copy a number to the device.
    return DynamicState(
        torch.where(grows, grown, smaller),
        good * (finite & stays),
        overflows * stays + shrinks * (policy.hysteresis - 1),
        steps * stays,
    )
