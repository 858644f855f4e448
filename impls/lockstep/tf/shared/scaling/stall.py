"""A run that stalls: steps skipped in a row are counted, and somebody is told."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling.refusals import STALLED
from lockstep.tf.shared.scaling.verdict import Verdict
from lockstep.tf.shared.tensors.replica_copies import is_first_replica

__all__ = ["Watch"]


class Watch(NamedTuple):
    """Who counts skipped steps, and when and how a stall is told.

    Attributes:
        owner: the wrapper's name.
        count: the steps skipped in a row: int64, 0-d, in checkpoints.
        scale: returns the loss scale.
        is_at_floor: says whether it cannot sink any more, which a stall needs.
        patience: steps.
        at_floor: ``warn``, ``raise`` or ``ignore``.
    """

    owner: str
    count: tf.Variable
    scale: Callable[[], tf.Tensor]
    is_at_floor: Callable[[], tf.Tensor]
    patience: int
    at_floor: str

    def count_eagerly(self, verdict: Verdict) -> None:
        """Count; warn once, or raise at each step, when patience is over."""
        skips = 0 if bool(verdict.finite) else int(self.count.read_value()) + 1
        self.count.assign(skips)
        quiet = self.at_floor == "ignore" or skips < self.patience
        if quiet or not is_first_replica() or not self.is_at_floor():
            return
        names = verdict.nonfinite()
        stalled = words.stalled(skips, float(self.scale()), names, self.owner)
        if self.at_floor == "raise":
            raise stalled
        if skips == self.patience:
            warnings.warn(str(stalled), stacklevel=6)

    def count_in_graph(self, verdict: Verdict) -> tf.Operation:
        """Count; print once, or fail at each step, when patience is over.

        XLA knows no strings: what it compiles only counts.
        """
        zero, before = tf.zeros((), tf.int64), self.count.read_value()
        skips = tf.where(verdict.finite, zero, before + 1)
        counted = self.count.assign(skips, read_value=False)
        graph = tf.compat.v1.get_default_graph()
        quiet = self.at_floor == "ignore" or not is_first_replica()
        if quiet or GraphOrParentsInXlaContext(graph):
            return counted
        reached = tf.greater_equal if self.at_floor == "raise" else tf.equal
        with tf.control_dependencies([counted]):
            stalled = reached(skips, tf.constant(self.patience, tf.int64))
            stalled = tf.logical_and(stalled, self.is_at_floor())
            return tf.cond(stalled, lambda: self.tell(verdict, skips), tf.no_op)

    def tell(self, verdict: Verdict, skips: tf.Tensor) -> tf.Operation:
        """Print the sentence to stderr, or fail with it."""
        text = stalled_text(self.owner, verdict, skips, self.scale())
        if self.at_floor == "raise":
            told = tf.debugging.Assert(False, [text])
        else:
            told = tf.print(text, output_stream=sys.stderr)
        with tf.control_dependencies([told]):
            return tf.no_op()


def stalled_text(
    owner: str, verdict: Verdict, skips: tf.Tensor, scale: tf.Tensor
) -> tf.Tensor:
    """Return the sentence of ``words.stalled`` with this step's values: string, 0-d."""
    names = tf.boolean_mask(tf.constant(verdict.names), tf.logical_not(verdict.flags))
    joined = tf.strings.reduce_join(names, separator=", ")
    joined = tf.where(tf.size(names) > 0, joined, words.named([]))
    values = [tf.strings.as_string(skips), tf.strings.as_string(scale, shortest=True)]
    first, *rest = STALLED.text(owner=owner, skips="{}", scale="{}", names="{}").split(
        "{}"
    )
    parts = zip([*values, joined], rest, strict=True)
    return tf.strings.join([first, *(piece for pair in parts for piece in pair)])
