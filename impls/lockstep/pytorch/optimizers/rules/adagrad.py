"""Adagrad on tensors, without an epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from lockstep.pytorch.optimizers.rules import Shared, Slots
from lockstep.pytorch.tensors import foreach, fused
from lockstep.pytorch.tensors.rounding import rsqrt
from lockstep.pytorch.tensors.rows import sum_duplicates

__all__ = ["Policy", "update_dense", "update_rows"]


class Policy(NamedTuple):
    """Hyper-parameters, in the dtype of gradients and slots."""

    learning_rate: Tensor
    initial_accumulator_value: Tensor


def update_dense(
    policy: Policy,
    shared: Shared,
    variables: Sequence[Tensor],
    slots: Sequence[Slots],
    gradients: Sequence[Tensor],
) -> None:
    """Apply the rule to every element: a += g^2, w -= lr g (1 / sqrt(a))."""
    accumulators = [slot["accumulator"] for slot in slots]
    foreach.add(accumulators, foreach.multiply(gradients, gradients))
    steps = foreach.scale_alike(gradients, policy.learning_rate)
    foreach.multiply_in_place(steps, fused.reciprocal_roots(accumulators))
    foreach.subtract_in_place(variables, steps)


def update_rows(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Apply the rule to the rows of the gradient."""
    indices, rows = sum_duplicates(gradient)
    accumulator = slots["accumulator"]
    accumulator[indices] += rows * rows
    variable[indices] -= rows * policy.learning_rate * rsqrt(accumulator[indices])
