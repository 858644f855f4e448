"""The dynamic loss scale: it grows after finite steps and shrinks after overflows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lockstep.messages.scaling.loss_scale import DynamicPolicy

__all__ = ["DynamicState", "start_dynamic", "step_dynamic"]


class DynamicState(NamedTuple):
    """State of the dynamic loss scale between two steps.

    Attributes:
        loss_scale: float32.
        good_steps: finite steps in a row since the scale last changed.
        overflows: overflows since the scale last grew. When the scale is lowered, this
            becomes hysteresis - 1, so that the next overflow lowers it again.
        steps: all steps since the scale last changed.
    """

    loss_scale: np.float32
    good_steps: int
    overflows: int = 0
    steps: int = 0


def start_dynamic(policy: DynamicPolicy) -> DynamicState:
    """Return the initial scale, with no step counted."""
    return DynamicState(np.float32(policy.initial_loss_scale), 0)


def step_dynamic(
    policy: DynamicPolicy, state: DynamicState, finite: bool
) -> DynamicState:
    """Return the state after a step; ``finite``: whether all its gradients were finite.

    Finite: good += 1; at good = period, scale = min(scale growth, ceiling) unless that
    is not finite, and good = overflows = steps = 0. Not finite: good = 0 and
    overflows += 1. If then overflows >= hysteresis and overflows / steps >= tolerance,
    this step included: scale = max(scale / multiplier, floor), or
    max(scale backoff, floor) if a factor is given, overflows = hysteresis - 1 and
    steps = 0. Scales are float32.
    """
    if finite:
        return good_step(policy, state)
    scale, overflows, steps = state.loss_scale, state.overflows + 1, state.steps + 1
    if overflows < policy.hysteresis or overflows / steps < policy.tolerance:
        return DynamicState(scale, 0, overflows, steps)
    with np.errstate(all="ignore"):
        if policy.backoff_factor is None:
            smaller = scale / np.float32(policy.multiplier)
        else:
            smaller = scale * np.float32(policy.backoff_factor)
        smaller = np.maximum(smaller, np.float32(policy.floor))
    return DynamicState(np.float32(smaller), 0, policy.hysteresis - 1)


def good_step(policy: DynamicPolicy, state: DynamicState) -> DynamicState:
    """Return the state after a step whose gradients were finite."""
    scale, good_steps = state.loss_scale, state.good_steps + 1
    if good_steps < policy.increment_period:
        return state._replace(good_steps=good_steps, steps=state.steps + 1)
    with np.errstate(all="ignore"):
        grown = scale * np.float32(policy.growth)
        grown = np.minimum(grown, np.float32(policy.ceiling))
    return DynamicState(np.float32(grown if np.isfinite(grown) else scale), 0)
