"""RMSProp, plain and centered, as ``tf.train.RMSPropOptimizer`` computes it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lockstep.interface import Array, Rows
from lockstep.reference.optimizers.rules import Shared, Slots
from lockstep.reference.optimizers.rules.adagrad import rsqrt
from lockstep.reference.tensors.rows import sum_duplicates

__all__ = ["Policy", "update_dense", "update_rows"]


class Policy(NamedTuple):
    """Hyper-parameters, in the variable's dtype."""

    learning_rate: Array
    decay: Array
    momentum: Array
    epsilon: Array
    centered: bool


def update_dense(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Array
) -> tuple[Array, Slots]:
    """rms += (g^2-rms)(1-d); mom = mom mu + g lr/sqrt(rms [- mg^2] + eps); w -= mom."""
    keep = variable.dtype.type(1) - policy.decay
    rms = slots["rms"] + (gradient * gradient - slots["rms"]) * keep
    new, spread = {"rms": rms}, rms
    if policy.centered:
        new["mg"] = slots["mg"] + (gradient - slots["mg"]) * keep
        spread = rms - new["mg"] * new["mg"]
    step = (gradient * policy.learning_rate) / np.sqrt(spread + policy.epsilon)
    new["momentum"] = slots["momentum"] * policy.momentum + step
    return variable - new["momentum"], new


def update_rows(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Rows
) -> tuple[Array, Slots]:
    """Only the gradient's rows: rms = rms d + g^2 (1-d);

    mom = mom mu + rsqrt(den + eps) lr g.
    """
    keep = variable.dtype.type(1) - policy.decay
    indices, rows, _ = sum_duplicates(gradient)
    variable, new = variable.copy(), {name: old.copy() for name, old in slots.items()}
    new["rms"][indices] = new["rms"][indices] * policy.decay + rows * rows * keep
    spread = new["rms"][indices]
    if policy.centered:
        new["mg"][indices] = new["mg"][indices] * policy.decay + rows * keep
        spread = spread - new["mg"][indices] * new["mg"][indices]
    step = rsqrt(spread + policy.epsilon) * policy.learning_rate * rows
    new["momentum"][indices] = new["momentum"][indices] * policy.momentum + step
    variable[indices] -= new["momentum"][indices]
    return variable, new
