"""FTRL-proximal, as ``tf.train.FtrlOptimizer`` computes it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lockstep.interface import Array, Rows
from lockstep.reference.optimizers.rules import Shared, Slots
from lockstep.reference.tensors.rows import sum_duplicates

__all__ = ["Policy", "update_dense", "update_rows"]


class Policy(NamedTuple):
    """Hyper-parameters, in the variable's dtype.

    ``hides_nan``: whether a dense update sets a weight to 0 if its linear is NaN.
    """

    learning_rate: Array
    learning_rate_power: Array
    initial_accumulator_value: Array
    l1_regularization_strength: Array
    l2_regularization_strength: Array
    l2_shrinkage_regularization_strength: Array
    hides_nan: bool = False


def update_dense(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Array
) -> tuple[Array, Slots]:
    """G = g + 2 s w; n = accum + g^2; linear += G - (n^-p - accum^-p)/lr w; accum = n;

    w = (sign(linear) l1 - linear) / (n^-p/lr + 2 l2) where abs(linear) > l1, else 0.

    If ``policy.hides_nan``, w is also 0 where linear is NaN.
    """
    rate, l1 = policy.learning_rate, policy.l1_regularization_strength
    two = variable.dtype.type(2)
    shrinkage = two * policy.l2_shrinkage_regularization_strength
    accum, linear = slots["accum"], slots["linear"]
    new_accum = accum + gradient * gradient
    old_root, new_root = root(policy, accum), root(policy, new_accum)
    # Without shrinkage, skip 0 * w, which is NaN where w is infinite.
    shrunk = gradient + shrinkage * variable if shrinkage else gradient
    linear = linear + (shrunk - (new_root - old_root) / rate * variable)
    pull = new_root / rate + two * policy.l2_regularization_strength
    moved = (np.sign(linear) * l1 - linear) / pull
    zero = np.zeros((), variable.dtype)
    moves = np.abs(linear) > l1 if policy.hides_nan else ~(np.abs(linear) <= l1)
    variable = np.where(moves, moved, zero)
    return variable, {"accum": new_accum, "linear": linear}


def update_rows(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Rows
) -> tuple[Array, Slots]:
    """Apply the rule only to the gradient's rows; as in the original, NaN stays NaN."""
    policy = policy._replace(hides_nan=False)
    indices, rows, _ = sum_duplicates(gradient)
    old = {name: values[indices] for name, values in slots.items()}
    moved, changed = update_dense(policy, shared, variable[indices], old, rows)
    variable, new = variable.copy(), {name: v.copy() for name, v in slots.items()}
    variable[indices] = moved
    for name, values in changed.items():
        new[name][indices] = values
    return variable, new


def root(policy: Policy, accum: Array) -> Array:
    """Return accum^-p; the power is computed in float64 and rounded once."""
    if policy.learning_rate_power == -0.5:
        return np.sqrt(accum)
    power = -policy.learning_rate_power.astype(np.float64)
    return np.power(accum.astype(np.float64), power).astype(accum.dtype)
