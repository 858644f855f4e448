"""Accumulation of a worker's changes between two pushes, as pure functions.

Origin: ``tf.contrib.opt.AGNOptimizer``, TensorFlow 1.15; J. Hermans, G. Spanakis,
R. Moeckel, "Accumulated Gradient Normalization", 2017 (arXiv:1710.02368).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lockstep.interface import Array, Rows

__all__ = ["add_changes", "is_due", "mean_changes"]


def add_changes(
    accumulators: Sequence[Array], changes: Sequence[Array | Rows]
) -> list[Array]:
    """Return each accumulator + its change; duplicate sparse rows are summed first.

    Args:
        accumulators: arrays of any shapes and dtypes.
        changes: arrays of the same shapes and dtypes, or rows: gradients, or the
            differences that a step made to weights.
    """
    with np.errstate(all="ignore"):
        pairs = zip(accumulators, changes, strict=True)
        return [np.asarray(a + densify(change, a)) for a, change in pairs]


def is_due(local_step: int, period: int) -> bool:
    """Return whether step ``local_step`` ends a round of ``period`` local steps."""
    return local_step % period == 0


def mean_changes(accumulators: Sequence[Array], period: int) -> list[Array]:
    """Return each accumulator / period, computed in its dtype."""
    with np.errstate(all="ignore"):
        return [np.asarray(a / a.dtype.type(period)) for a in accumulators]


def densify(change: Array | Rows, accumulator: Array) -> Array:
    """Return a change as a dense array of its accumulator's shape."""
    if not isinstance(change, Rows):
        return change
    dense = np.zeros_like(accumulator)
    np.add.at(dense, change.indices, change.values)
    return dense
