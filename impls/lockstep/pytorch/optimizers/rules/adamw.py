"""AdamW on tensors: a decay that is not multiplied by the rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from lockstep.pytorch.optimizers.rules import Shared, Slots, adam
from lockstep.pytorch.tensors import foreach, fused
from lockstep.pytorch.tensors.rows import sum_duplicates

__all__ = ["Policy", "update_dense", "update_rows"]


class Policy(NamedTuple):
    """Hyper-parameters, in the dtype of gradients and slots."""

    weight_decay: Tensor
    learning_rate: Tensor
    beta1: Tensor
    beta2: Tensor
    epsilon: Tensor

    @property
    def adam(self) -> adam.Policy:
        """The hyper-parameters of the Adam step after the decay."""
        return adam.Policy(*self[1:])


def update_dense(
    policy: Policy,
    shared: Shared,
    variables: Sequence[Tensor],
    slots: Sequence[Slots],
    gradients: Sequence[Tensor],
) -> None:
    """Apply the rule to every element: w -= wd w, then Adam's step."""
    wide = [variable.to(policy.weight_decay.dtype) for variable in variables]
    fused.add_scaled(wide, wide, -policy.weight_decay)
    adam.update_dense(policy.adam, shared, wide, slots, gradients)
    # Variables that were already wide have been updated in place.
    foreach.copy(variables, wide)


def update_rows(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Decay each row of the gradient once; then Adam updates every row."""
    indices = sum_duplicates(gradient).indices
    wide = variable.to(policy.weight_decay.dtype)
    wide[indices] -= policy.weight_decay * wide[indices]
    adam.update_rows(policy.adam, shared, wide, slots, gradient)
    variable.copy_(wide)
