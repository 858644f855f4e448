"""Summaries of gradients: what is told, and TensorFlow's own writers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lockstep.messages.clipping.larc import LarcPolicy
from lockstep.messages.step import summaries as words
from lockstep.messages.step.summaries import Recorder, Summaries
from lockstep.tf.shared.clipping.larc import tensor_norms
from lockstep.tf.shared.tensors.gradients import summed_values

__all__ = [
    "EagerRecorder",
    "Entry",
    "GraphRecorder",
    "host_recorder",
    "record_entries",
    "record_ratios",
]

LARC = "larc_summaries"


class Entry(NamedTuple):
    """One pair: the gradient or None, the variable, and its name for tags."""

    gradient: Any
    variable: tf.Variable
    name: str


class GraphRecorder:
    """``tf.compat.v1.summary``: operations in the collection SUMMARIES of a graph."""

    def scalar(self, tag: str, value: tf.Tensor) -> None:
        """Make the operation of a 0-d tensor."""
        tf.compat.v1.summary.scalar(tag, value)

    def histogram(self, tag: str, values: tf.Tensor) -> None:
        """Make the operation of a tensor of any shape."""
        tf.compat.v1.summary.histogram(tag, values)


class EagerRecorder:
    """``tf.summary``: what the default writer writes, under its current step."""

    def scalar(self, tag: str, value: tf.Tensor) -> None:
        """Write a 0-d tensor."""
        tf.summary.scalar(tag, value)

    def histogram(self, tag: str, values: tf.Tensor) -> None:
        """Write a tensor of any shape."""
        tf.summary.histogram(tag, values)


def host_recorder() -> Recorder | None:
    """Return TensorFlow's own recorder; None where nobody would listen."""
    with tf.init_scope():
        eager = tf.executing_eagerly()
    if not eager:
        return GraphRecorder()
    listens = tf.get_static_value(tf.summary.should_record_summaries())
    return EagerRecorder() if listens is None or listens else None


def record_entries(asked: Summaries, entries: Sequence[Entry]) -> None:
    """Tell what was asked of each gradient that is present, and of its variable."""
    for gradient, variable, name in entries:
        if gradient is not None:
            record_values(asked, "gradient", summed_values(gradient), name)
            record_values(asked, "variable", tf.convert_to_tensor(variable), name)


def record_values(asked: Summaries, what: str, values: tf.Tensor, name: str) -> None:
    """Tell the finite values of a tensor, and its norm in float32."""
    if asked.wants(f"{what}s"):
        finite = tf.where(tf.math.is_finite(values), values, tf.zeros_like(values))
        asked.histogram(f"{what}s", finite, name)
    if asked.wants(f"{what}_norm"):
        asked.scalar(f"{what}_norm", f"{what}_norm", tensor_norms([values])[0], name)


def record_ratios(
    asked: Summaries,
    policy: LarcPolicy,
    names: Sequence[str],
    numbers: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
) -> None:
    """Tell where LARC lowers the rate, the ratios, and the rate times each.

    Args:
        asked: what was asked for.
        policy: the parameters.
        names: of the n variables.
        numbers: raw ratios [n], ratios [n], and the rate, 0-d.
    """
    if not asked.wants(LARC):
        return
    raw, ratio, rate = numbers
    kinds = {words.LARC_UPDATE: ratio, words.LARC_RATE: rate * ratio}
    if policy.mode == "clip":
        kinds = {words.LARC_CLIP_ON: tf.cast(raw < 1.0, tf.int32), **kinds}
    for kind, values in kinds.items():
        for position, name in enumerate(names):
            asked.scalar(LARC, kind, values[position], name)
