"""Clipping rows in TensorFlow, each variant a ``tf.function``."""

from __future__ import annotations

from functools import partial

import tensorflow as tf

from harness.tasks.overhead.tf_model import traced
from harness.tasks.row_clipping_overhead.tables import (
    LIMIT,
    LONG,
    SHORT,
    SMALL,
    WIDTH,
    named_rows,
)
from harness.timing import Makers, Prepared, Step
from lockstep.tf import GradientDescentOptimizer, VariableClippingOptimizer


def makers(seed: int, device: str, part: str, vocabulary: str) -> Makers:
    """Return the builder of each step: ``ours``, ``dense``, ``small`` (a small table).

    ``part`` is ``clip``, the clipping after the update.
    """
    table, small = Table(int(vocabulary), seed), Table(SMALL, seed)
    return {
        "ours": partial(our_clip, table),
        "small": partial(our_clip, small),
        "dense": partial(dense_clip, table),
    }


class Table:
    """A table of short rows, and the rows of a step."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        self.weight = tf.Variable(tf.fill([vocabulary, WIDTH], SHORT))
        self.named = tf.constant(named_rows(vocabulary, seed))
        self.long = tf.fill([len(self.named), WIDTH], LONG)

    def lengthen(self) -> None:
        """Increase the norms of the named rows beyond the limit."""
        tf.raw_ops.ResourceScatterUpdate(
            resource=self.weight.handle, indices=self.named, updates=self.long
        )

    def prepared(self, step: Step) -> Step:
        """Return a compiled step, preceded by :meth:`lengthen`, which is not timed."""
        return Prepared(self.lengthen, traced(step))


def our_clip(table: Table) -> Step:
    """Return the wrapper's clipping after a sparse update."""
    base = GradientDescentOptimizer(0.1)
    optimizer = VariableClippingOptimizer(base, {table.weight.ref(): [1]}, LIMIT)
    shape = table.weight.shape.as_list()
    gradient = tf.IndexedSlices(table.long, table.named, shape)

    def clip() -> None:
        optimizer._clip(gradient, table.weight, too_large=[])

    return table.prepared(clip)


def dense_clip(table: Table) -> Step:
    """Return a clipping of all rows by ``tf.clip_by_norm``."""

    def clip() -> None:
        clipped = tf.clip_by_norm(table.weight, LIMIT, axes=[1])
        table.weight.assign(clipped, read_value=False)

    return table.prepared(clip)
