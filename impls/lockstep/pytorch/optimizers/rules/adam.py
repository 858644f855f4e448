"""Adam on tensors, in the "epsilon hat" form."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from lockstep.pytorch.optimizers.rules import Shared, Slots
from lockstep.pytorch.tensors.rounding import sqrt
from lockstep.pytorch.tensors.rows import sum_duplicates

__all__ = ["Policy", "step_size", "update_dense", "update_rows"]


class Policy(NamedTuple):
    """Hyper-parameters, in the dtype of gradients and slots."""

    learning_rate: Tensor
    beta1: Tensor
    beta2: Tensor
    epsilon: Tensor


def step_size(policy: Policy, shared: Shared) -> Tensor:
    """Return lr sqrt(1 - beta2_power) / (1 - beta1_power) in the policy's dtype."""
    power1 = policy.beta1.new_tensor(shared["beta1_power"])
    power2 = policy.beta2.new_tensor(shared["beta2_power"])
    return policy.learning_rate * sqrt(1 - power2) / (1 - power1)


def update_dense(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Apply the rule to every element."""
    m, v = slots["m"], slots["v"]
    m += (gradient - m) * (1 - policy.beta1)
    v += (gradient * gradient - v) * (1 - policy.beta2)
    variable -= m * step_size(policy, shared) / (sqrt(v) + policy.epsilon)


def update_rows(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Decay both moments of every row, and move every row: the rule is not lazy."""
    m, v = slots["m"], slots["v"]
    indices, rows = sum_duplicates(gradient)
    m *= policy.beta1
    v *= policy.beta2
    m[indices] += rows * (1 - policy.beta1)
    v[indices] += (rows * rows) * (1 - policy.beta2)
    variable -= step_size(policy, shared) * m / (sqrt(v) + policy.epsilon)
