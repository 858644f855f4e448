"""Accumulation of a worker's changes between two pushes, over lists of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from lockstep.pytorch.tensors.foreach import add, divide

__all__ = ["add_changes", "is_due", "mean_changes"]


def add_changes(accumulators: Sequence[Tensor], changes: Sequence[Tensor]) -> None:
    """Add a change to each accumulator in place; sparse changes are made dense first.

    Changes are gradients, or the differences that a step made to weights.
    """
    dense = [c.to_dense() if c.is_sparse else c for c in changes]
    add(accumulators, dense)


def is_due(local_step: int, period: int) -> bool:
    """Whether the local step ends a round."""
    return local_step % period == 0


def mean_changes(accumulators: Sequence[Tensor], period: int) -> list[Tensor]:
    """Return the accumulators divided by the period, each in its dtype."""
    return divide(accumulators, period)
