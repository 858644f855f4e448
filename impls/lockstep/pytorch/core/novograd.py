"""NovoGrad: momentum of gradients that are divided by a norm, one a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lockstep.pytorch.core import momentum
from lockstep.pytorch.core.clip_gradients import lane_sum
from lockstep.pytorch.core.numbers import rounded
from lockstep.pytorch.core.roots import rsqrt
from lockstep.pytorch.core.state import Shared, Slots

__all__ = [
    "Policy",
    "next_moment",
    "normalized",
    "policy_of",
    "square_norm",
    "square_norm_as_original",
    "update_dense",
    "update_rows",
]


class Policy(NamedTuple):
    """Hyper-parameters, 0-d; ``wide`` is the variable's dtype, but float32 at least.

    Attributes:
        learning_rate, beta1: in the variable's dtype.
        beta2, rest2: b2 and 1 - b2, wide.
        epsilon, weight_decay: wide.
        share: 1 - b1 if gradients are averaged, else 1, wide.
        remembers: whether the second moment is written back.
    """

    learning_rate: Tensor
    beta1: Tensor
    beta2: Tensor
    rest2: Tensor
    epsilon: Tensor
    weight_decay: Tensor
    share: Tensor
    remembers: bool


def policy_of(
    arguments: Mapping[str, Any], dtype: torch.dtype, remembers: bool
) -> Policy:
    """Cast the arguments of the constructor; 1 - beta is taken before, in float64."""
    wide = torch.promote_types(dtype, torch.float32)
    share = 1 - arguments["beta1"] if arguments["grad_averaging"] else 1.0
    return Policy(
        number(arguments["learning_rate"], dtype),
        number(arguments["beta1"], dtype),
        number(arguments["beta2"], wide),
        number(1 - arguments["beta2"], wide),
        number(arguments["epsilon"], wide),
        number(arguments["weight_decay"], wide),
        number(share, wide),
        remembers,
    )


def number(value: float | Tensor, dtype: torch.dtype) -> Tensor:
    """Return a number, or a 0-d tensor, as a 0-d tensor of ``dtype``."""
    if isinstance(value, Tensor):
        return value.to(dtype)
    return torch.tensor(rounded(value, dtype), dtype=dtype)


def square_norm(gradient: Tensor) -> Tensor:
    """Return |g|^2, the sum of the squares of all elements: 0-d, wide."""
    return squares(gradient).sum()


def square_norm_as_original(gradient: Tensor) -> Tensor:
    """Strict: return |g|^2, added up in the original's order, which takes longer."""
    return lane_sum(squares(gradient))


def squares(gradient: Tensor) -> Tensor:
    """Return the squares of all elements, wide."""
    return gradient.to(torch.promote_types(gradient.dtype, torch.float32)).square()


def next_moment(policy: Policy, moment: Tensor, square: Tensor) -> Tensor:
    """v = |g|^2 at first, b2 v + (1 - b2) |g|^2 once v is a finite number above 0.

    A square that overflows would stay infinite for ever, so it is forgotten.

    # Quirk: docs/differences.md#novograd-second-moment. Without memory v is |g|^2.
    """
    if not policy.remembers:
        return square
    begun = (moment > 0) & (moment < torch.inf)
    mixed = moment * policy.beta2 + square * policy.rest2
    return torch.where(begun, mixed, square)


def normalized(
    policy: Policy, moment: Tensor, variable: Tensor, gradient: Tensor
) -> Tensor:
    """g' = (g (1 / sqrt(v + eps)) + wd w) share, rounded to the variable's dtype."""
    factor = rsqrt(moment + policy.epsilon)
    direction = gradient.to(factor.dtype) * factor
    if policy.weight_decay:
        direction = direction + policy.weight_decay * variable.to(factor.dtype)
    return (direction * policy.share).to(variable.dtype)


def update_dense(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Take v from g, then a = b1 a + g'; w -= lr a."""
    stored = slots["second_moment"]
    norm_of = square_norm if policy.remembers else square_norm_as_original
    moment = next_moment(policy, stored, norm_of(gradient))
    direction = normalized(policy, moment, variable, gradient)
    plain = momentum.Policy(policy.learning_rate, policy.beta1, False)
    momentum.update_dense(plain, shared, variable, slots, direction)
    if policy.remembers:
        stored.copy_(moment)


def update_rows(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Make the gradient dense, duplicates summed: momentum decays on every row."""
    update_dense(policy, shared, variable, slots, gradient.to_dense())
