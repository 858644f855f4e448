"""Momentum and Nesterov momentum, as ``tf.train.MomentumOptimizer`` computes them."""

from __future__ import annotations

from typing import NamedTuple

from lockstep.interface import Array, Rows
from lockstep.reference.optimizers.rules import Shared, Slots
from lockstep.reference.tensors.rows import sum_duplicates

__all__ = ["Policy", "update_dense", "update_rows"]


class Policy(NamedTuple):
    """Hyper-parameters, in the variable's dtype."""

    learning_rate: Array
    momentum: Array
    use_nesterov: bool


def update_dense(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Array
) -> tuple[Array, Slots]:
    """a = mu a + g; w -= lr a. Nesterov: w -= g lr + a mu lr, with the new a."""
    rate, mu = policy.learning_rate, policy.momentum
    momentum = slots["momentum"] * mu + gradient
    if policy.use_nesterov:
        variable = variable - (gradient * rate + momentum * mu * rate)
    else:
        variable = variable - momentum * rate
    return variable, {"momentum": momentum}


def update_rows(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Rows
) -> tuple[Array, Slots]:
    """Apply the rule only to the gradient's rows; other momentum does not decay.

    Nesterov uses the order of the sparse kernel: w -= lr g + (lr mu) a.
    """
    rate, mu = policy.learning_rate, policy.momentum
    indices, rows, _ = sum_duplicates(gradient)
    variable, momentum = variable.copy(), slots["momentum"].copy()
    momentum[indices] = momentum[indices] * mu + rows
    if policy.use_nesterov:
        variable[indices] -= rate * rows + (rate * mu) * momentum[indices]
    else:
        variable[indices] -= rate * momentum[indices]
    return variable, {"momentum": momentum}
