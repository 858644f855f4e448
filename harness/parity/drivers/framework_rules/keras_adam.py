"""Adam and AdamW in the arithmetic of ``keras.optimizers`` (Keras 3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lockstep.interface import Array
from lockstep.reference.optimizers.rules import Shared, Slots

__all__ = ["Policy", "update_dense"]


class Policy(NamedTuple):
    """Hyper-parameters as Python floats. Keras casts them when it uses them."""

    learning_rate: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float = 0.0


def update_dense(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Array
) -> tuple[Array, Slots]:
    """w -= lr decay w; m += (1-b1)(g-m); v += (1-b2)(g^2-v); w -= a m / (sqrt(v)+eps).

    a = lr sqrt(1 - b2^t) / (1 - b1^t), and t counts the steps of all variables. Unlike
    in TF1's Adam, 1-b1 and 1-b2 are computed in float64, and the powers from t.
    """
    dtype = variable.dtype.type
    one, rate = dtype(1), dtype(policy.learning_rate)
    step = dtype(shared["iterations"] + 1)
    power1, power2 = dtype(policy.beta1) ** step, dtype(policy.beta2) ** step
    size = rate * np.sqrt(one - power2) / (one - power1)
    if policy.weight_decay:
        variable = variable - variable * dtype(policy.weight_decay) * rate
    m = slots["m"] + (gradient - slots["m"]) * dtype(1 - policy.beta1)
    v = slots["v"] + (gradient * gradient - slots["v"]) * dtype(1 - policy.beta2)
    change = m * size / (np.sqrt(v) + dtype(policy.epsilon))
    return variable - change, {"m": m, "v": v}
