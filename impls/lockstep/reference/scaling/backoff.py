"""Backoff: the scale shrinks on overflow and grows after ``step_window`` steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lockstep.messages.scaling.automatic_scaler import BackoffPolicy

__all__ = ["BackoffState", "start_backoff", "step_backoff"]


class BackoffState(NamedTuple):
    """The loss scale (float32), the step counter, and the step of the last overflow."""

    loss_scale: np.float32
    iteration: int
    last_overflow_iteration: int


def start_backoff(policy: BackoffPolicy) -> BackoffState:
    """Return the state before the first step: the scale at its upper bound."""
    return BackoffState(np.float32(policy.scale_max), 0, -1)


def step_backoff(
    policy: BackoffPolicy, state: BackoffState, has_nan: bool, amax: float
) -> BackoffState:
    """Return the state after a step with these gradients.

    ``has_nan``: whether a gradient contains NaN. ``amax``: the largest magnitude of all
    gradients. factor and window are ``step_factor`` and ``step_window``.

    i = iteration. Overflow (``has_nan``, or ``amax`` infinite or, by default, NaN):
    scale = clip(scale / factor), last = i. Otherwise, where (i - last) mod window = 0:
    scale = clip(scale factor). Then iteration = i + 1. In float32.

    So the scale grows every ``window`` steps after the last overflow; no counter is
    reset. The default and strict modes agree here.
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
    """Return max(min(scale, scale_max), scale_min); if the bounds cross, scale_min."""
    at_most = np.minimum(scale, np.float32(policy.scale_max))
    return np.float32(np.maximum(at_most, np.float32(policy.scale_min)))
