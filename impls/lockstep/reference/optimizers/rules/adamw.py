"""AdamW as in ``tf.contrib.opt``: the decay is not multiplied by the learning rate."""

from __future__ import annotations

from typing import NamedTuple

from lockstep.interface import Array, Rows
from lockstep.reference.optimizers.rules import Shared, Slots, adam
from lockstep.reference.tensors.rows import sum_duplicates

__all__ = ["Policy", "update_dense", "update_rows"]


class Policy(NamedTuple):
    """Hyper-parameters, in the variable's dtype."""

    weight_decay: Array
    learning_rate: Array
    beta1: Array
    beta2: Array
    epsilon: Array

    @property
    def adam(self) -> adam.Policy:
        """The hyper-parameters of the Adam step that follows the decay."""
        return adam.Policy(*self[1:])


def update_dense(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Array
) -> tuple[Array, Slots]:
    """w -= weight_decay w, then Adam."""
    decayed = variable - policy.weight_decay * variable
    return adam.update_dense(policy.adam, shared, decayed, slots, gradient)


def update_rows(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Rows
) -> tuple[Array, Slots]:
    """w[i] -= weight_decay w[i] once per row of the gradient, then sparse Adam."""
    indices = sum_duplicates(gradient).indices
    decayed = variable.copy()
    decayed[indices] -= policy.weight_decay * variable[indices]
    return adam.update_rows(policy.adam, shared, decayed, slots, gradient)
