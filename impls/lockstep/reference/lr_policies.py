"""The learning-rate policies of :mod:`lockstep.policies`, for numbers and arrays."""

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
