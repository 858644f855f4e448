"""The dynamic loss scale: it grows after finite steps and shrinks at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lockstep.spec.loss_scaling import DynamicPolicy

__all__ = ["DynamicState", "start_dynamic", "step_dynamic"]


class DynamicState(NamedTuple):
    """``loss_scale``: float32; ``good_steps``: finite steps since it last moved."""

    loss_scale: np.float32
    good_steps: int


def start_dynamic(policy: DynamicPolicy) -> DynamicState:
    """Return the state before the first step."""
    return DynamicState(np.float32(policy.initial_loss_scale), 0)


def step_dynamic(
    policy: DynamicPolicy, state: DynamicState, finite: bool
) -> DynamicState:
    """Return the state after a step whose gradients were ``finite``, or were not.

    finite: good += 1; at good = period, scale = min(scale multiplier, ceiling) unless
    that is not finite, and good = 0. Not finite: scale = max(scale / multiplier,
    floor), good = 0. All in float32.
    """
    scale, good_steps = state
    factor = np.float32(policy.multiplier)
    with np.errstate(all="ignore"):
        if not finite:
            smaller = np.maximum(scale / factor, np.float32(policy.floor))
            return DynamicState(np.float32(smaller), 0)
        if good_steps + 1 < policy.increment_period:
            return DynamicState(scale, good_steps + 1)
        grown = np.minimum(scale * factor, np.float32(policy.ceiling))
    return DynamicState(np.float32(grown if np.isfinite(grown) else scale), 0)
