"""RMSProp on tensors, plain and centered."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from lockstep.pytorch.optimizers.rules import Shared, Slots
from lockstep.pytorch.tensors.rounding import rsqrt, sqrt
from lockstep.pytorch.tensors.rows import sum_duplicates

__all__ = ["Policy", "update_dense", "update_rows"]


class Policy(NamedTuple):
    """Hyper-parameters, in the dtype of gradients and slots."""

    learning_rate: Tensor
    decay: Tensor
    momentum: Tensor
    epsilon: Tensor
    centered: bool


def update_dense(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Apply the rule to every element."""
    keep = 1 - policy.decay
    rms, momentum = slots["rms"], slots["momentum"]
    rms += (gradient * gradient - rms) * keep
    spread = rms
    if policy.centered:
        mg = slots["mg"]
        mg += (gradient - mg) * keep
        spread = rms - mg * mg
    step = (gradient * policy.learning_rate) / sqrt(spread + policy.epsilon)
    momentum.mul_(policy.momentum).add_(step)
    variable -= momentum


def update_rows(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Apply the rule to the rows that are named."""
    keep = 1 - policy.decay
    indices, rows = sum_duplicates(gradient)
    spread = slots["rms"][indices] * policy.decay + rows * rows * keep
    slots["rms"][indices] = spread
    if policy.centered:
        mg = slots["mg"][indices] * policy.decay + rows * keep
        slots["mg"][indices] = mg
        spread = spread - mg * mg
    step = rsqrt(spread + policy.epsilon) * policy.learning_rate * rows
    momentum = slots["momentum"][indices] * policy.momentum + step
    slots["momentum"][indices] = momentum
    variable[indices] -= momentum
