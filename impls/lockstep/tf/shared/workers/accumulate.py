"""The sums of a worker's changes between two pushes, as pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

__all__ = ["add_changes", "is_due", "mean_changes"]


def add_changes(
    accumulators: Sequence[tf.Tensor], changes: Sequence[tf.Tensor | tf.IndexedSlices]
) -> list[tf.Tensor]:
    """Return the accumulators with their changes added.

    :func:`lockstep.reference.workers.accumulate.add_changes` has the rule.
    """
    pairs = zip(accumulators, changes, strict=True)
    return [accumulator + densify(change, accumulator) for accumulator, change in pairs]


def is_due(local_step: tf.Tensor, period: int) -> tf.Tensor:
    """Whether a round of ``period`` steps ends now: bool, 0-d."""
    return tf.equal(local_step % period, 0)


def mean_changes(accumulators: Sequence[tf.Tensor], period: int) -> list[tf.Tensor]:
    """Return the accumulators divided by ``period``."""
    return [accumulator / period for accumulator in accumulators]


def densify(change: tf.Tensor | tf.IndexedSlices, accumulator: tf.Tensor) -> tf.Tensor:
    """Return a change as a tensor with the shape of its accumulator."""
    if not isinstance(change, tf.IndexedSlices):
        return change
    rows = tf.shape(accumulator)[0]
    return tf.math.unsorted_segment_sum(change.values, change.indices, rows)
