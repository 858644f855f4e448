"""What a worker gathers between two pushes, as pure functions of tensors.

Origin: ``tf.contrib.opt.AGNOptimizer``, TensorFlow 1.15; J. Hermans, G. Spanakis,
R. Moeckel, "Accumulated Gradient Normalization", 2017 (arXiv:1710.02368).
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

__all__ = ["add_changes", "is_due", "mean_changes"]


def add_changes(
    accumulators: Sequence[tf.Tensor], changes: Sequence[tf.Tensor | tf.IndexedSlices]
) -> list[tf.Tensor]:
    """Return each accumulator + its change; sparse rows are added up first.

    The rule and the arguments are those of
    :func:`lockstep.reference.workers.accumulate.add_changes`.
    """
    pairs = zip(accumulators, changes, strict=True)
    return [accumulator + densify(change, accumulator) for accumulator, change in pairs]


def is_due(local_step: tf.Tensor, period: int) -> tf.Tensor:
    """Say whether a round of ``period`` local steps ends with step ``local_step``."""
    return tf.equal(local_step % period, 0)


def mean_changes(accumulators: Sequence[tf.Tensor], period: int) -> list[tf.Tensor]:
    """Return each accumulator / period, taken in its dtype."""
    return [accumulator / period for accumulator in accumulators]


def densify(change: tf.Tensor | tf.IndexedSlices, accumulator: tf.Tensor) -> tf.Tensor:
    """Return a change as a tensor like its accumulator."""
    if not isinstance(change, tf.IndexedSlices):
        return change
    rows = tf.shape(accumulator)[0]
    return tf.math.unsorted_segment_sum(change.values, change.indices, rows)
