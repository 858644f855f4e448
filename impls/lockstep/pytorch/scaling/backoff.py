"""The scale of "Backoff" in plain numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lockstep.messages.scaling.automatic_scaler import BackoffPolicy

__all__ = ["BackoffState", "start_backoff", "step_backoff"]


class BackoffState(NamedTuple):
    """``loss_scale`` as float32 holds it, and two counts of steps."""

    loss_scale: np.float32
    iteration: int
    last_overflow_iteration: int


def start_backoff(policy: BackoffPolicy) -> BackoffState:
    """Start at the upper bound."""
    return BackoffState(np.float32(policy.scale_max), 0, -1)


def step_backoff(
    policy: BackoffPolicy, state: BackoffState, has_nan: bool, amax: float
) -> BackoffState:
    """Return the next state; NaN and an ``amax`` that is not finite are overflows.

    The rule is that of :func:`lockstep.reference.scaling.backoff.step_backoff`.
    """
    scale, i, last = state
    factor = np.float32(policy.step_factor)
    overflow = has_nan or np.isinf(amax) or (policy.nan_overflows and np.isnan(amax))
    with np.errstate(all="ignore"):
        if overflow:
            scale, last = clip(scale / factor, policy), i
        elif (i - last) % policy.step_window == 0:
            scale = clip(scale * factor, policy)
    return BackoffState(scale, i + 1, last)


def clip(scale: np.float32, policy: BackoffPolicy) -> np.float32:
    """Return the scale within its bounds, below the upper one first."""
    at_most = np.minimum(scale, np.float32(policy.scale_max))
    return np.float32(np.maximum(at_most, np.float32(policy.scale_min)))
