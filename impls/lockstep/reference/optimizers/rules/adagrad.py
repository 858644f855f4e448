"""Adagrad, as ``tf.train.AdagradOptimizer`` computes it (no epsilon)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lockstep.interface import Array, Rows
from lockstep.reference.optimizers.rules import Shared, Slots
from lockstep.reference.tensors.rows import sum_duplicates

__all__ = ["Policy", "update_dense", "update_rows"]


class Policy(NamedTuple):
    """Hyper-parameters, in the variable's dtype."""

    learning_rate: Array
    initial_accumulator_value: Array


def update_dense(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Array
) -> tuple[Array, Slots]:
    """acc += g^2; w -= g lr rsqrt(acc)."""
    accumulator = slots["accumulator"] + gradient * gradient
    change = gradient * policy.learning_rate * rsqrt(accumulator)
    return variable - change, {"accumulator": accumulator}


def update_rows(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Rows
) -> tuple[Array, Slots]:
    """Apply the rule only to the rows of the gradient."""
    indices, rows, _ = sum_duplicates(gradient)
    variable, accumulator = variable.copy(), slots["accumulator"].copy()
    accumulator[indices] += rows * rows
    variable[indices] -= rows * policy.learning_rate * rsqrt(accumulator[indices])
    return variable, {"accumulator": accumulator}


def rsqrt(values: Array) -> Array:
    """Return 1 / sqrt(x), both operations rounded to the dtype of ``values``."""
    with np.errstate(divide="ignore"):
        inverse: Array = values.dtype.type(1) / np.sqrt(values)
        return inverse
