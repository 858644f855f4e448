"""Momentum and Nesterov momentum on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from lockstep.pytorch.optimizers.rules import Shared, Slots
from lockstep.pytorch.tensors import foreach, fused
from lockstep.pytorch.tensors.rows import sum_duplicates

__all__ = ["Policy", "update_dense", "update_rows"]


class Policy(NamedTuple):
    """Hyper-parameters, in the dtype of gradients and slots."""

    learning_rate: Tensor
    momentum: Tensor
    use_nesterov: bool


def update_dense(
    policy: Policy,
    shared: Shared,
    variables: Sequence[Tensor],
    slots: Sequence[Slots],
    gradients: Sequence[Tensor],
) -> None:
    """Apply the rule to every element: m = mu m + g, w -= lr m."""
    rate, mu = policy.learning_rate, policy.momentum
    momenta = [slot["momentum"] for slot in slots]
    foreach.scale_alike_in_place(momenta, mu)
    foreach.add(momenta, gradients)
    if policy.use_nesterov:
        # w -= lr g + lr mu m
        steps = foreach.scale_alike(gradients, rate)
        fused.add_scaled(steps, foreach.scale_alike(momenta, mu), rate)
        foreach.subtract_in_place(variables, steps)
    else:
        fused.add_scaled(variables, momenta, -rate)


def update_rows(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Apply the rule to the gradient's rows, in the order of the sparse kernel."""
    rate, mu = policy.learning_rate, policy.momentum
    indices, rows = sum_duplicates(gradient)
    momentum = slots["momentum"][indices] * mu + rows
    slots["momentum"][indices] = momentum
    if policy.use_nesterov:
        variable[indices] -= rate * rows + (rate * mu) * momentum
    else:
        variable[indices] -= rate * momentum
