"""Where the summaries of a step go: to a graph's collection, or to a writer."""

from __future__ import annotations

import tensorflow as tf

from lockstep.messages.step.summaries import SummaryRecord
from lockstep.tf.shared.step.summaries import GraphRecorder, host_recorder

__all__ = ["blank", "flat", "new_record", "refilled", "tell_graph", "tell_writer"]


def new_record() -> SummaryRecord | None:
    """Return a record to fill; None where nobody would listen."""
    return None if host_recorder() is None else SummaryRecord()


def tell_graph(record: SummaryRecord | None) -> None:
    """Make the operations that are in the collection SUMMARIES of the graph."""
    if record is None:
        return
    recorder = GraphRecorder()
    for tag, value in record.scalars.items():
        recorder.scalar(tag, value)
    for tag, values in record.histograms.items():
        recorder.histogram(tag, values)


def tell_writer(
    record: SummaryRecord | None, step: tf.Tensor, wanted: tf.Tensor | bool
) -> None:
    """Write to the default writer of ``tf.summary``, if this step is ``wanted``."""
    if record is None:
        return
    both = tf.logical_and(tf.summary.should_record_summaries(), wanted)
    with tf.summary.record_if(both):
        for tag, value in record.scalars.items():
            tf.summary.scalar(tag, value, step)
        for tag, values in record.histograms.items():
            tf.summary.histogram(tag, values, step)


def flat(record: SummaryRecord | None) -> list[tf.Tensor]:
    """Return what a record holds, so that a condition can return it."""
    if record is None:
        return []
    held = [*record.scalars.values(), *record.histograms.values()]
    return [tf.convert_to_tensor(value) for value in held]


def blank(values: list[tf.Tensor]) -> list[tf.Tensor]:
    """Return what stands for values in a call without an update.

    NaN, which TensorBoard does not draw, for a number; histograms refuse it.
    """
    return [
        tf.constant(float("nan"), value.dtype)
        if value.dtype.is_floating and value.shape.rank == 0
        else tf.zeros([size or 0 for size in value.shape], value.dtype)
        for value in values
    ]


def refilled(record: SummaryRecord | None, values: list[tf.Tensor]) -> None:
    """Put the values that a condition returned in the place of those in its branch."""
    if record is None:
        return
    left = iter(values)
    for held in (record.scalars, record.histograms):
        held.update({tag: next(left) for tag in held})
