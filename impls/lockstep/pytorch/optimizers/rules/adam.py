"""Adam on tensors, in the "epsilon hat" form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from lockstep.pytorch.optimizers.rules import Shared, Slots
from lockstep.pytorch.tensors import foreach, fused
from lockstep.pytorch.tensors.rounding import quotient, rounded, sqrt
from lockstep.pytorch.tensors.rows import sum_duplicates

__all__ = ["Policy", "step_size", "update_dense", "update_rows"]


class Policy(NamedTuple):
    """Hyper-parameters, in the dtype of gradients and slots."""

    learning_rate: Tensor
    beta1: Tensor
    beta2: Tensor
    epsilon: Tensor


def step_size(policy: Policy, shared: Shared) -> Tensor | float:
    """Return lr sqrt(1 - beta2_power) / (1 - beta1_power).

    Each operation is rounded to the policy's dtype, as with tensors. Python numbers are
    used because they are faster, except for a learning rate on a GPU.
    """
    rate, dtype = policy.learning_rate, policy.learning_rate.dtype
    rest1 = rounded(1 - rounded(shared["beta1_power"], dtype), dtype)
    rest2 = rounded(1 - rounded(shared["beta2_power"], dtype), dtype)
    root = rounded(math.sqrt(rest2), dtype) if rest2 >= 0 else math.nan
    if not rate.is_cpu:
        return rate * root / foreach.number_like(rest1, rate)
    return rounded(quotient(rounded(rate.item() * root, dtype), rest1), dtype)


def update_dense(
    policy: Policy,
    shared: Shared,
    variables: Sequence[Tensor],
    slots: Sequence[Slots],
    gradients: Sequence[Tensor],
) -> None:
    """Apply the rule to every element.

    m += (g - m) (1 - b1), v += (g^2 - v) (1 - b2), w -= m step_size / (sqrt(v) + eps)
    """
    m, v = [slot["m"] for slot in slots], [slot["v"] for slot in slots]
    fused.blend(m, gradients, 1 - policy.beta1)
    fused.blend(v, foreach.multiply(gradients, gradients), 1 - policy.beta2)
    divisors = foreach.roots_plus(v, policy.epsilon)
    fused.add_quotients(variables, m, -step_size(policy, shared), divisors)


def update_rows(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Decay both moments and update every row: the rule is not lazy."""
    m, v = slots["m"], slots["v"]
    indices, rows = sum_duplicates(gradient)
    m *= policy.beta1
    v *= policy.beta2
    m[indices] += rows * (1 - policy.beta1)
    v[indices] += (rows * rows) * (1 - policy.beta2)
    variable -= step_size(policy, shared) * m / (sqrt(v) + policy.epsilon)
