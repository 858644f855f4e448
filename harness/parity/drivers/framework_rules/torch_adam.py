"""Adam in the arithmetic of ``torch.optim.Adam`` (CPU, not fused), in NumPy.

It is the standard for a wrapper around torch's own optimizer. Golden data -> the
reference with TF1's rules verifies the logic of a wrapper. The reference with torch's
rules -> the wrapper around ``torch.optim`` verifies it on that backend.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from lockstep.interface import Array
from lockstep.optimizers import OptimizerSpec, Parameter, Slot
from lockstep.reference.arrays import Variable
from lockstep.reference.optimizers import RuleOptimizer, Slots


def update_dense(
    policy: Any, variable: Array, slots: Slots, gradient: Array
) -> tuple[Array, Slots]:
    """m += (1-b1)(g-m); v = b2 v + (1-b2) g^2; w -= lr/(1-b1^t) m / (sqrt(v)/c + eps).

    c = sqrt(1 - b2^t), and t counts the steps of this parameter only. Unlike in TF1's
    Adam, 1-b1 and 1-b2 are computed in float64, and eps is added after the bias
    correction. torch's float32 sqrt is not correctly rounded on a CPU; this one is.
    """
    dtype = variable.dtype.type
    step = slots["step"] + 1
    m = multiply_add(slots["m"], 1 - policy.beta1, gradient - slots["m"])
    v = slots["v"] * dtype(policy.beta2)
    v = multiply_add(v, dtype(1 - policy.beta2) * gradient, gradient)
    correction1 = 1 - policy.beta1 ** int(step)
    correction2 = (1 - policy.beta2 ** int(step)) ** 0.5
    denominator = np.sqrt(v) / dtype(correction2) + dtype(policy.eps)
    change = dtype(-policy.lr / correction1) * m / denominator
    return variable + change, {"m": m, "v": v, "step": step}


def multiply_add(addend: Array, factor: float | Array, values: Array) -> Array:
    """Return ``addend + factor values`` with one rounding, like a fused multiply-add.

    ``factor`` is cast to the dtype first. The exact product of two float32 numbers fits
    into float64. The only difference to a true fused operation is the second rounding.
    """
    cast = np.asarray(factor, addend.dtype).astype(np.float64)
    exact = addend.astype(np.float64) + cast * values.astype(np.float64)
    rounded: Array = exact.astype(addend.dtype)
    return rounded


class TorchOptimizer(RuleOptimizer):
    """A rule of torch: dense gradients, a step count per parameter, float64 numbers."""

    def hyper(self, dtype: np.dtype[Any], shared: Slots) -> Any:
        """Return the hyper-parameters without a cast: torch casts in each kernel."""
        return SimpleNamespace(**self.arguments)

    def initial_slots(self, variable: Variable) -> dict[str, Array]:
        """Return new slots, and a step counter for this variable."""
        return {**super().initial_slots(variable), "step": np.zeros((), np.int64)}


def parameters(**defaults: Any) -> tuple[Parameter, ...]:
    """Return parameters of which any value is taken."""
    return tuple(
        Parameter(n, d, "a value", lambda _: True) for n, d in defaults.items()
    )


class TorchAdam(TorchOptimizer):
    """``torch.optim.Adam(lr, (beta1, beta2), eps)``."""

    spec = OptimizerSpec(
        "TorchAdam",
        parameters(lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8),
        (Slot("m"), Slot("v")),
    )
    rule = staticmethod(update_dense)
