"""The learning-rate policies of :mod:`lockstep.policies`, for numbers and tensors.

For an integer step they return a Python float with a float32 value, for an integer
tensor a tensor on the same device. Reading a step on a GPU waits for it. The scheduler
:class:`lockstep.pytorch.PolicyLR` writes their rates into an optimizer.
"""

from lockstep.policies import (
    cosine_decay,
    exp_decay,
    fixed_lr,
    inv_poly_decay,
    piecewise_constant,
    poly_decay,
    transformer_policy,
)

__all__ = [
    "cosine_decay",
    "exp_decay",
    "fixed_lr",
    "inv_poly_decay",
    "piecewise_constant",
    "poly_decay",
    "transformer_policy",
]
