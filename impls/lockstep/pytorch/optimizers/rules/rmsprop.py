"""RMSProp on tensors, plain and centered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from lockstep.pytorch.optimizers.rules import Shared, Slots
from lockstep.pytorch.tensors import foreach, fused
from lockstep.pytorch.tensors.rounding import rsqrt
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
    policy: Policy,
    shared: Shared,
    variables: Sequence[Tensor],
    slots: Sequence[Slots],
    gradients: Sequence[Tensor],
) -> None:
    """Apply the rule to every element.

    rms += (g^2 - rms) (1 - d), mom = mu mom + lr g / sqrt(rms + eps), w -= mom;
    centered: the root is of rms - mg^2 + eps, where mg += (g - mg) (1 - d).
    """
    keep = 1 - policy.decay
    spreads = [slot["rms"] for slot in slots]
    fused.blend(spreads, foreach.multiply(gradients, gradients), keep)
    if policy.centered:
        means = [slot["mg"] for slot in slots]
        fused.blend(means, gradients, keep)
        spreads = foreach.subtract(spreads, foreach.multiply(means, means))
    divisors = foreach.roots(foreach.plus_number(spreads, policy.epsilon))
    momenta = [slot["momentum"] for slot in slots]
    foreach.scale_alike_in_place(momenta, policy.momentum)
    fused.add_quotients(momenta, gradients, policy.learning_rate, divisors)
    foreach.subtract_in_place(variables, momenta)


def update_rows(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Apply the rule to the rows of the gradient."""
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
