"""Gradient descent on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from lockstep.pytorch.optimizers.rules import Shared, Slots
from lockstep.pytorch.tensors import fused
from lockstep.pytorch.tensors.rows import as_rows, sum_duplicates

__all__ = ["Policy", "update_dense", "update_rows"]


class Policy(NamedTuple):
    """Hyper-parameters, in the dtype of gradients and slots."""

    learning_rate: Tensor


def update_dense(
    policy: Policy,
    shared: Shared,
    variables: Sequence[Tensor],
    slots: Sequence[Slots],
    gradients: Sequence[Tensor],
) -> None:
    """w -= lr g."""
    fused.add_scaled(variables, gradients, -policy.learning_rate)


def update_rows(
    policy: Policy, shared: Shared, variable: Tensor, slots: Slots, gradient: Tensor
) -> None:
    """Update a row once for each of its occurrences, in order.

    If the gradient's dtype is wider than the variable's, duplicates are summed first,
    so that each row is rounded once.
    """
    if gradient.dtype != variable.dtype:
        indices, rows = sum_duplicates(gradient)
        variable[indices] -= policy.learning_rate * rows
        return
    indices, rows = as_rows(gradient)
    variable.index_add_(0, indices, policy.learning_rate * rows, alpha=-1)
