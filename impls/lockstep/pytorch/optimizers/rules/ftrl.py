"""FTRL-proximal on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lockstep.pytorch.optimizers.rules import Shared, Slots
from lockstep.pytorch.tensors import foreach
from lockstep.pytorch.tensors.rounding import sqrt
from lockstep.pytorch.tensors.rows import sum_duplicates

__all__ = ["Policy", "update_dense", "update_rows"]

SLOTS = ("accum", "linear")


class Policy(NamedTuple):
    """Hyper-parameters, in the dtype of gradients and slots.

    ``hides_nan``: as in the reference.
    """

    learning_rate: Tensor
    learning_rate_power: Tensor
    initial_accumulator_value: Tensor
    l1_regularization_strength: Tensor
    l2_regularization_strength: Tensor
    l2_shrinkage_regularization_strength: Tensor
    hides_nan: bool = False


def update_dense(
    policy: Policy,
    shared: Shared,
    variables: Sequence[Tensor],
    slots: Sequence[Slots],
    gradients: Sequence[Tensor],
) -> None:
    """Apply the rule to every element; NaN is hidden if the policy says so.

    Several tensors are concatenated, which takes fewer operations than the rule applied
    to each of them.
    """
    if len(variables) == 1:
        update_one(policy, variables[0], slots[0], gradients[0])
        return
    by_name = {name: [slot[name] for slot in slots] for name in SLOTS}
    changed = {name: foreach.end_to_end(tensors) for name, tensors in by_name.items()}
    moved = foreach.end_to_end(variables)
    update_one(policy, moved, changed, foreach.end_to_end(gradients))
    foreach.copy_parts(variables, moved)
    for name, tensors in by_name.items():
        foreach.copy_parts(tensors, changed[name])


def update_one(
    policy: Policy, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Apply the rule to every element of one tensor."""
    l1 = policy.l1_regularization_strength
    # A GPU would multiply by the reciprocal of a number on the CPU.
    rate = foreach.number_like(policy.learning_rate, slots["accum"])
    accum, linear = slots["accum"], slots["linear"]
    weights = variable.to(accum.dtype)
    old_root = root(policy, accum)
    accum += gradient * gradient
    new_root = root(policy, accum)
    shrinkage = 2 * policy.l2_shrinkage_regularization_strength
    # Without shrinkage, avoid 0 * w, which is NaN where w is infinite.
    shrunk = gradient + torch.where(shrinkage == 0, 0, shrinkage * weights)
    linear += shrunk - (new_root - old_root) / rate * weights
    pull = new_root / rate + 2 * policy.l2_regularization_strength
    moved = (linear.sign() * l1 - linear) / pull
    size = linear.abs()
    stays = ~(size > l1) if policy.hides_nan else size <= l1
    variable.copy_(torch.where(stays, 0, moved))


def update_rows(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Apply the rule to the gradient's rows; NaN is not hidden, as in the original.

    ``slots`` may contain other tensors, such as a master, which do not change.
    """
    policy = policy._replace(hides_nan=False)
    indices, rows = sum_duplicates(gradient)
    moved = variable[indices]
    changed = {name: slots[name][indices] for name in SLOTS}
    update_one(policy, moved, changed, rows)
    variable[indices] = moved
    for name, values in changed.items():
        slots[name][indices] = values


def root(policy: Policy, accum: Tensor) -> Tensor:
    """Return accum^-p, computed in float64."""
    if policy.learning_rate_power == -0.5:
        return sqrt(accum)
    return accum.double().pow(-policy.learning_rate_power.double()).to(accum.dtype)
