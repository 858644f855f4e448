"""SGD with momentum in the arithmetic of ``keras.optimizers.SGD`` (Keras 3)."""

from __future__ import annotations

from typing import NamedTuple

from lockstep.interface import Array
from lockstep.reference.optimizers.rules import Shared, Slots

__all__ = ["Policy", "update_dense"]


class Policy(NamedTuple):
    """Hyper-parameters as Python floats. Keras casts them when it uses them."""

    learning_rate: float
    momentum: float
    use_nesterov: bool


def update_dense(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Array
) -> tuple[Array, Slots]:
    """m = mu m - lr g; w += m. Nesterov: w += mu m - lr g.

    TF1's slot holds a = mu a + g. Here the slot includes the rate.
    """
    dtype = variable.dtype.type
    mu, step = dtype(policy.momentum), gradient * dtype(policy.learning_rate)
    momentum = slots["momentum"] * mu - step
    change = momentum * mu - step if policy.use_nesterov else momentum
    return variable + change, {"momentum": momentum}
