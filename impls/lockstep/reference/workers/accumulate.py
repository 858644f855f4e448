"""What a worker gathers between two pushes, as pure functions.

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
    """Return each accumulator + its change; sparse rows are added up first.

    Args:
        accumulators: of any shapes and dtypes.
        changes: like them, or rows of them: gradients, or what a step added to weights.
    """
    with np.errstate(all="ignore"):
        pairs = zip(accumulators, changes, strict=True)
        return [np.asarray(a + densify(change, a)) for a, change in pairs]


def is_due(local_step: int, period: int) -> bool:
    """Say whether a round of ``period`` local steps ends with step ``local_step``."""
    return local_step % period == 0


def mean_changes(accumulators: Sequence[Array], period: int) -> list[Array]:
    """Return each accumulator / period, taken in its dtype."""
    with np.errstate(all="ignore"):
        return [np.asarray(a / a.dtype.type(period)) for a in accumulators]


def densify(change: Array | Rows, accumulator: Array) -> Array:
    """Return a change as an array like its accumulator."""
    if not isinstance(change, Rows):
        return change
    dense = np.zeros_like(accumulator)
    np.add.at(dense, change.indices, change.values)
    return dense
