"""SGD with momentum in the arithmetic of ``torch.optim.SGD`` (CPU, not fused)."""

from __future__ import annotations

from typing import Any

from harness.parity.drivers.framework_rules import multiply_add
from lockstep.interface import Array
from lockstep.reference.optimizers import Slots


def update_dense(
    policy: Any, variable: Array, slots: Slots, gradient: Array
) -> tuple[Array, Slots]:
    """b = mu b + g (the first b is g); w -= lr b. Nesterov: w -= lr (g + mu b).

    TF1's momentum is the same rule with another order and number of roundings.
    """
    if policy.momentum == 0:
        return multiply_add(variable, -policy.lr, gradient), slots
    first = slots["step"] == 0
    momentum = gradient
    if not first:
        shrunk = slots["momentum"] * variable.dtype.type(policy.momentum)
        momentum = shrunk + gradient
    step = momentum
    if policy.nesterov:
        step = multiply_add(gradient, policy.momentum, momentum)
    moved = multiply_add(variable, -policy.lr, step)
    return moved, {"momentum": momentum, "step": slots["step"] + 1}
