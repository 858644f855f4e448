"""Summaries of gradients, and their recorders for graphs and for writers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lockstep.messages.step.summaries import Recorder, Summaries, SummaryRecord
from lockstep.tf.shared.gradients import summed_values

__all__ = [
    "EagerRecorder",
    "Entry",
    "GraphRecorder",
    "add_to_graph",
    "blank",
    "flat",
    "host_recorder",
    "new_record",
    "record_entries",
    "refilled",
    "write_summaries",
]

OF_VALUES = ("gradients", "gradient_norm", "variables", "variable_norm")
"""The summaries of single tensors' elements."""


class Entry(NamedTuple):
    """A gradient or None, its variable, and the variable's name for tags."""

    gradient: Any
    variable: tf.Variable
    name: str


class GraphRecorder:
    """``tf.compat.v1.summary``: operations in the collection SUMMARIES of a graph."""

    def scalar(self, tag: str, value: tf.Tensor) -> None:
        """Add the operation of a 0-d tensor."""
        tf.compat.v1.summary.scalar(tag, value)

    def histogram(self, tag: str, values: tf.Tensor) -> None:
        """Add the operation of a tensor of any shape."""
        tf.compat.v1.summary.histogram(tag, values)


class EagerRecorder:
    """``tf.summary``: writes to the default writer, at its current step."""

    def scalar(self, tag: str, value: tf.Tensor) -> None:
        """Write a 0-d tensor."""
        tf.summary.scalar(tag, value)

    def histogram(self, tag: str, values: tf.Tensor) -> None:
        """Write a tensor of any shape."""
        tf.summary.histogram(tag, values)


def host_recorder() -> Recorder | None:
    """Return TensorFlow's own recorder; None if nothing is recorded."""
    with tf.init_scope():
        eager = tf.executing_eagerly()
    if not eager:
        return GraphRecorder()
    listens = tf.get_static_value(tf.summary.should_record_summaries())
    return EagerRecorder() if listens is None or listens else None


def record_entries(asked: Summaries, entries: Sequence[Entry]) -> None:
    """Record the summaries of each present gradient and its variable."""
    if not asked.wants(*OF_VALUES):
        return
    for gradient, variable, name in entries:
        if gradient is not None:
            record_values(asked, "gradient", summed_values(gradient), name)
            record_values(asked, "variable", tf.convert_to_tensor(variable), name)


def record_values(asked: Summaries, what: str, values: tf.Tensor, name: str) -> None:
    """Record the finite values of a tensor, and its norm in float32."""
    if asked.wants(f"{what}s"):
        finite = tf.where(tf.math.is_finite(values), values, tf.zeros_like(values))
        asked.histogram(f"{what}s", finite, name)
    if asked.wants(f"{what}_norm"):
        norm = tf.sqrt(tf.reduce_sum(tf.square(tf.cast(values, tf.float32))))
        asked.scalar(f"{what}_norm", f"{what}_norm", norm, name)


def new_record() -> SummaryRecord | None:
    """Return an empty record; None if nothing is recorded."""
    return None if host_recorder() is None else SummaryRecord()


def add_to_graph(record: SummaryRecord | None) -> None:
    """Add the record's operations to the collection SUMMARIES of the graph."""
    if record is None:
        return
    recorder = GraphRecorder()
    for tag, value in record.scalars.items():
        recorder.scalar(tag, value)
    for tag, values in record.histograms.items():
        recorder.histogram(tag, values)


def write_summaries(
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
    """Return the values of a record as a list, which a condition can return."""
    if record is None:
        return []
    held = [*record.scalars.values(), *record.histograms.values()]
    return [tf.convert_to_tensor(value) for value in held]


def blank(record: SummaryRecord | None) -> list[tf.Tensor]:
    """Return placeholders for the values of a record, for a call without an update.

    A number becomes NaN, which TensorBoard does not draw. A histogram becomes zeros,
    because histograms do not accept NaN, not even those of a 0-d variable.
    """
    numbers = 0 if record is None else len(record.scalars)
    return [
        tf.constant(float("nan"), value.dtype)
        if value.dtype.is_floating and place < numbers
        else tf.zeros([size or 0 for size in value.shape], value.dtype)
        for place, value in enumerate(flat(record))
    ]


def refilled(record: SummaryRecord | None, values: list[tf.Tensor]) -> None:
    """Replace a record's values from a branch by the values of the condition."""
    if record is None:
        return
    left = iter(values)
    for held in (record.scalars, record.histograms):
        held.update({tag: next(left) for tag in held})
