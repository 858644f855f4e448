"""What a worker gathers between two pushes, over lists of tensors.

Origin: ``tf.contrib.opt.AGNOptimizer``, TensorFlow 1.15; J. Hermans, G. Spanakis,
R. Moeckel, "Accumulated Gradient Normalization", 2017 (arXiv:1710.02368).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from lockstep.pytorch.tensors.foreach import add, divide

__all__ = ["add_changes", "is_due", "mean_changes"]


def add_changes(accumulators: Sequence[Tensor], changes: Sequence[Tensor]) -> None:
    """Add a change to each accumulator, in place; sparse rows are added up first.

    Args:
        accumulators: of any shapes and dtypes.
        changes: like them, dense or sparse: gradients, or what a step added to weights.
    """
    dense = [c.to_dense() if c.is_sparse else c for c in changes]
    add(accumulators, dense)


def is_due(local_step: int, period: int) -> bool:
    """Say whether a round of ``period`` local steps ends with step ``local_step``."""
    return local_step % period == 0


def mean_changes(accumulators: Sequence[Tensor], period: int) -> list[Tensor]:
    """Return each accumulator / period, taken in its dtype."""
    return divide(accumulators, period)
