"""Momentum and Nesterov momentum on tensors."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from lockstep.pytorch.optimizers.rules import Shared, Slots
from lockstep.pytorch.tensors.rows import sum_duplicates

__all__ = ["Policy", "update_dense", "update_rows"]


class Policy(NamedTuple):
    """Hyper-parameters, in the dtype of gradients and slots."""

    learning_rate: Tensor
    momentum: Tensor
    use_nesterov: bool


def update_dense(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Apply the rule to every element."""
    rate, mu = policy.learning_rate, policy.momentum
    momentum = slots["momentum"].mul_(mu).add_(gradient)
    if policy.use_nesterov:
        variable -= gradient * rate + momentum * mu * rate
    else:
        variable -= momentum * rate


def update_rows(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Apply the rule to the rows that are named, in the order of the sparse kernel."""
    rate, mu = policy.learning_rate, policy.momentum
    indices, rows = sum_duplicates(gradient)
    momentum = slots["momentum"][indices] * mu + rows
    slots["momentum"][indices] = momentum
    if policy.use_nesterov:
        variable[indices] -= rate * rows + (rate * mu) * momentum
    else:
        variable[indices] -= rate * momentum
