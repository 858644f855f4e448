"""NovoGrad on lists of tensors that share a device and a dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lockstep.pytorch.optimizers.rules import Shared, Slots
from lockstep.pytorch.tensors import foreach, fused, shards
from lockstep.pytorch.tensors.lanes import lane_sum
from lockstep.pytorch.tensors.norms import norm_of_each, together
from lockstep.pytorch.tensors.rounding import rounded, rsqrt

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

Number = float | Tensor


class Policy(NamedTuple):
    """Hyper-parameters, each a number or a 0-d tensor, wide: at least float32.

    Slots and results are wide too. ``share`` is None without averaging; the other
    fields are as in the reference.
    """

    learning_rate: Number
    beta1: Number
    beta2: Number
    rest2: Number
    epsilon: Number
    weight_decay: Number
    share: Number | None
    remembers: bool


def policy_of(
    arguments: Mapping[str, Any], dtype: torch.dtype, remembers: bool
) -> Policy:
    """Return the hyper-parameters of the rule from the constructor's arguments."""
    wide = wide_dtype(dtype)
    averages = arguments["grad_averaging"]
    return Policy(
        number(arguments["learning_rate"], wide),
        number(arguments["beta1"], wide),
        number(arguments["beta2"], wide),
        number(1 - arguments["beta2"], wide),
        number(arguments["epsilon"], wide),
        number(arguments["weight_decay"], wide),
        number(1 - arguments["beta1"], wide) if averages else None,
        remembers,
    )


def number(value: Number, dtype: torch.dtype) -> Number:
    """Round a number, or cast a 0-d tensor, to ``dtype``."""
    return value.to(dtype) if isinstance(value, Tensor) else rounded(value, dtype)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of norms and normalized gradients."""
    return torch.promote_types(dtype, torch.float32)


def square_norm(gradient: Sequence[Tensor]) -> Tensor:
    """Return |g|^2, the sum of all squared elements, of each gradient: [n], wide.

    The gradients share a dtype. In float32 the norm is squared, which reads each
    gradient once and needs no memory for the squares.
    """
    if shards.are_among(gradient):
        return shards.sums(square_norm(shards.parts_of(gradient)), gradient)
    if wide_dtype(gradient[0].dtype) == torch.float32:
        return norm_of_each(gradient).square()
    sums = [square.sum() for square in squares(gradient)]
    return together(sums, gradient[0].device)


def square_norm_as_original(gradient: Sequence[Tensor]) -> Tensor:
    """Strict: return each |g|^2, summed in the original's order: [n], wide."""
    return together(lane_sum(squares(gradient)), gradient[0].device)


def squares(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return the squares of all elements, wide."""
    wide = cast(gradients, wide_dtype(gradients[0].dtype))
    return foreach.multiply(wide, wide)


def cast(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return tensors in ``dtype``; the check is cheaper than a cast without effect."""
    return [t if t.dtype == dtype else t.to(dtype) for t in tensors]


def next_moment(policy: Policy, moment: Tensor, square: Tensor) -> Tensor:
    """Return v after a step, [n]; a v of 0 or infinity is replaced by ``square``."""
    if not policy.remembers:
        return square
    begun = (moment > 0) & (moment < torch.inf)
    mixed = moment * policy.beta2 + square * policy.rest2
    return torch.where(begun, mixed, square)


def normalized(
    policy: Policy,
    moment: Tensor,
    variable: Sequence[Tensor],
    gradient: Sequence[Tensor],
) -> list[Tensor]:
    """g' = (g (1 / sqrt(v + eps)) + wd w) share, wide.

    ``moment`` contains v of each gradient: [n].
    """
    factors = rsqrt(moment + policy.epsilon)
    wide = cast(gradient, factors.dtype)
    directions = foreach.multiply(wide, factors.unbind())
    decay = policy.weight_decay
    if not is_zero(decay):
        fused.add_scaled(directions, cast(variable, factors.dtype), decay)
    if policy.share is not None:
        foreach.scale_alike_in_place(directions, policy.share)
    return directions


def is_zero(number: Number) -> bool:
    """Whether a number is 0; False for a tensor, because reading one is a host sync."""
    return not isinstance(number, Tensor) and not number


def update_dense(
    policy: Policy,
    shared: Shared,
    variables: Sequence[Tensor],
    slots: Sequence[Slots],
    gradients: Sequence[Tensor],
) -> None:
    """Update v, momentum and weights; for DTensors, this rank's parts."""
    stored = [slot["second_moment"] for slot in slots]
    norm_of = square_norm if policy.remembers else square_norm_as_original
    before = together(stored, variables[0].device)
    moment = next_moment(policy, before, norm_of(gradients))
    variables, gradients = map(shards.parts_of, (variables, gradients))
    momenta = shards.parts_of(slot["momentum"] for slot in slots)
    foreach.scale_alike_in_place(momenta, policy.beta1)
    if is_zero(policy.weight_decay) and policy.share is None:
        # No new tensor here: writing one takes as long as the rest of the rule.
        factors = rsqrt(moment + policy.epsilon)
        fused.add_each_scaled(momenta, cast(gradients, factors.dtype), factors)
    else:
        foreach.add(momenta, normalized(policy, moment, variables, gradients))
    fused.add_scaled(variables, momenta, -policy.learning_rate)
    if policy.remembers:
        foreach.copy(stored, moment.unbind())


def update_rows(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Convert the gradient to dense first, because momentum decays in every row."""
    update_dense(policy, shared, [variable], [slots], [gradient.to_dense()])
