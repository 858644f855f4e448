"""Adam, as ``tf.train.AdamOptimizer`` computes it ("epsilon hat" form)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lockstep.interface import Array, Rows
from lockstep.reference.optimizers.rules import Shared, Slots
from lockstep.reference.tensors.rows import sum_duplicates

__all__ = ["Policy", "step_size", "update_dense", "update_rows"]


class Policy(NamedTuple):
    """Hyper-parameters, in the variable's dtype."""

    learning_rate: Array
    beta1: Array
    beta2: Array
    epsilon: Array


def step_size(policy: Policy, shared: Shared) -> Array:
    """Return lr sqrt(1 - beta2_power) / (1 - beta1_power) in the variable's dtype."""
    dtype = policy.learning_rate.dtype
    one = dtype.type(1)
    power1, power2 = (shared[k].astype(dtype) for k in ("beta1_power", "beta2_power"))
    with np.errstate(divide="ignore"):
        size: Array = policy.learning_rate * np.sqrt(one - power2) / (one - power1)
        return size


def update_dense(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Array
) -> tuple[Array, Slots]:
    """m += (g-m)(1-b1); v += (g^2-v)(1-b2); w -= m a / (sqrt(v) + eps)."""
    one = variable.dtype.type(1)
    m = slots["m"] + (gradient - slots["m"]) * (one - policy.beta1)
    v = slots["v"] + (gradient * gradient - slots["v"]) * (one - policy.beta2)
    change = (m * step_size(policy, shared)) / (np.sqrt(v) + policy.epsilon)
    return variable - change, {"m": m, "v": v}


def update_rows(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Rows
) -> tuple[Array, Slots]:
    """m = b1 m, then m[i] += (1-b1) g; v likewise. Not lazy: every row of w changes."""
    one = variable.dtype.type(1)
    indices, rows, _ = sum_duplicates(gradient)
    m, v = slots["m"] * policy.beta1, slots["v"] * policy.beta2
    m[indices] += rows * (one - policy.beta1)
    v[indices] += (rows * rows) * (one - policy.beta2)
    change = step_size(policy, shared) * m / (np.sqrt(v) + policy.epsilon)
    return variable - change, {"m": m, "v": v}
