"""The dynamic scale as tensors: moved where the gradients are, without a look at it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lockstep.spec.loss_scale import DynamicPolicy

__all__ = ["DeviceState", "step_on_device"]


class DeviceState(NamedTuple):
    """``loss_scale``: 0-d float32; ``good_steps``: 0-d int64."""

    loss_scale: Tensor
    good_steps: Tensor


def step_on_device(
    policy: DynamicPolicy, state: DeviceState, finite: Tensor
) -> DeviceState:
    """Return what :func:`step_dynamic` returns, for a 0-d bool ``finite``."""
    scale, good_steps = state
    smaller = (scale / policy.multiplier).clamp(min=policy.floor)
    larger = (scale * policy.multiplier).clamp(max=policy.ceiling)
    larger = torch.where(larger.isfinite(), larger, scale)
    full = good_steps + 1 >= policy.increment_period
    kept = torch.where(full, larger, scale)
    good_steps = torch.where(finite & ~full, good_steps + 1, 0)
    return DeviceState(torch.where(finite, kept, smaller), good_steps)
