"""Gradient descent, as ``tf.train.GradientDescentOptimizer`` computes it."""

from __future__ import annotations

from typing import NamedTuple

from lockstep.interface import Array, Rows
from lockstep.reference.optimizers.rules import Shared, Slots

__all__ = ["Policy", "update_dense", "update_rows"]


class Policy(NamedTuple):
    """Hyper-parameters, in the variable's dtype."""

    learning_rate: Array


def update_dense(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Array
) -> tuple[Array, Slots]:
    """w -= lr g."""
    return variable - policy.learning_rate * gradient, slots


def update_rows(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Rows
) -> tuple[Array, Slots]:
    """w[i] -= lr g[k] for each occurrence k in order; duplicates are not summed."""
    variable = variable.copy()
    for index, row in zip(gradient.indices.tolist(), gradient.values, strict=True):
        variable[index] = variable[index] - policy.learning_rate * row
    return variable, slots
