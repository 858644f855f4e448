"""The scale of "Backoff" in Python numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from lockstep.messages.scaling.automatic_scaler import BackoffPolicy

__all__ = ["BackoffState", "start_backoff", "step_backoff"]


class BackoffState(NamedTuple):
    """The scale (float32), the step counter, and the step of the last overflow."""

    loss_scale: np.float32
    iteration: int
    last_overflow_iteration: int


def start_backoff(policy: BackoffPolicy) -> BackoffState:
    """Return the state before the first step: the scale at its upper bound."""
    return BackoffState(np.float32(policy.scale_max), 0, -1)


def step_backoff(
    policy: BackoffPolicy, state: BackoffState, has_nan: bool, amax: float
) -> BackoffState:
    """Return the next state; NaN and an ``amax`` that is not finite are overflows.

    The rule is that of :func:`lockstep.reference.scaling.backoff.step_backoff`.
    """
    scale, i, last = state
    is_nan = policy.nan_overflows and math.isnan(amax)
    overflow = has_nan or math.isinf(amax) or is_nan
    if overflow or (i - last) % policy.step_window == 0:
        factor = np.float32(policy.step_factor)
        with np.errstate(all="ignore"):
            scale = clip(scale / factor if overflow else scale * factor, policy)
    return BackoffState(scale, i + 1, i if overflow else last)


def clip(scale: np.float32, policy: BackoffPolicy) -> np.float32:
    """Return the scale clamped to its upper bound, and then to its lower bound."""
    at_most = np.minimum(scale, np.float32(policy.scale_max))
    return np.float32(np.maximum(at_most, np.float32(policy.scale_min)))
