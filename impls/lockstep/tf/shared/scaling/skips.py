"""Counts of skipped steps, in a row and in all, and the report of a stall.

One variable, ``skipped_in_a_row``, holds both counts: its upper half counts the skipped
steps before this row.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from lockstep.errors import warn_user
from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling.refusals import STALLED
from lockstep.tf.shared.gradients import is_first_replica
from lockstep.tf.shared.scaling.scaled_step import ScaledStep

__all__ = ["SkipCounts", "Skips"]

UPPER = 2**32
"""The unit of the upper half; a row of skipped steps is always shorter."""


class Skips(NamedTuple):
    """The count of skipped steps of a wrapper.

    Attributes:
        owner: the wrapper's name.
        variable: steps in a row + UPPER * steps before this row: int64, 0-d.
    """

    owner: str
    variable: tf.Variable

    def in_a_row(self) -> tf.Tensor:
        """Return the steps skipped in a row: int64, 0-d."""
        return tf.math.floormod(self.variable.read_value(), UPPER)

    def total(self) -> tf.Tensor:
        """Return all skipped steps: int64, 0-d."""
        return self.in_a_row() + self.variable.read_value() // UPPER

    def count(
        self, step: ScaledStep, scale: Any, at_floor: str, patience: int
    ) -> tf.Operation | None:
        """Count a step, report a stall, and return the operation.

        Args:
            step: the step, after its check.
            scale: returns the loss scale; its ``at_floor`` returns whether the scale
                cannot shrink further. Only then there is a stall.
            at_floor: ``warn``: warn once; ``raise``: fail at each step; ``ignore``.
            patience: how many skipped steps in a row are a stall.
        """
        if not tf.executing_eagerly():
            return self._count_in_graph(step, scale, at_floor, patience)
        # Nearly always this step and the step before it are applied.
        held = int(self.variable.read_value())
        before = held % UPPER
        skips = 0 if bool(step.finite) else before + 1
        if skips or before:
            total = held - before + (skips or before * UPPER)
            self.variable.assign(total, read_value=False)
        quiet = at_floor == "ignore" or skips < patience
        if quiet or not is_first_replica() or not scale.at_floor():
            return None
        names = step.nonfinite()
        stalled = words.stalled(skips, float(scale()), names, self.owner)
        if at_floor == "raise":
            raise stalled
        if skips == patience:
            warn_user(str(stalled))
        return None

    def _count_in_graph(
        self, step: ScaledStep, scale: Any, at_floor: str, patience: int
    ) -> tf.Operation:
        """Count; at a stall print once, or fail at each step.

        XLA has no strings, so a graph that XLA compiles only counts.
        """
        zero, before = tf.zeros((), tf.int64), self.in_a_row()
        skips = tf.where(step.finite, zero, before + 1)
        row = tf.where(tf.equal(skips, 0), before * UPPER, skips)
        total = self.variable.read_value() - before + row
        counted = self.variable.assign(total, read_value=False)
        graph = tf.compat.v1.get_default_graph()
        quiet = at_floor == "ignore" or not is_first_replica()
        if quiet or GraphOrParentsInXlaContext(graph):
            return counted
        reached = tf.greater_equal if at_floor == "raise" else tf.equal
        with tf.control_dependencies([counted]):
            stalled = reached(skips, tf.constant(patience, tf.int64))
            stalled = tf.logical_and(stalled, scale.at_floor())

            def tell() -> tf.Operation:
                text = stalled_text(self.owner, step, skips, scale())
                if at_floor == "raise":
                    printed = tf.debugging.Assert(False, [text])
                else:
                    printed = tf.print(text, output_stream=sys.stderr)
                with tf.control_dependencies([printed]):
                    return tf.no_op()

            return tf.cond(stalled, tell, tf.no_op)


class SkipCounts:
    """The public counts of a wrapper; a strict wrapper has none."""

    _skips: Skips

    @property
    def skipped_in_a_row(self) -> tf.Tensor:
        """The number of skipped steps since the last applied one: int64, 0-d."""
        return self._skips.in_a_row()

    @property
    def skipped_steps(self) -> tf.Tensor:
        """The number of all skipped steps: int64, 0-d."""
        return self._skips.total()


def stalled_text(
    owner: str, step: ScaledStep, skips: tf.Tensor, scale: tf.Tensor
) -> tf.Tensor:
    """Return the message of ``words.stalled`` with this step's values: string, 0-d."""
    names = tf.boolean_mask(tf.constant(step.names_present), tf.logical_not(step.flags))
    joined = tf.strings.reduce_join(names, separator=", ")
    joined = tf.where(tf.size(names) > 0, joined, words.named([]))
    values = [tf.strings.as_string(skips), tf.strings.as_string(scale, shortest=True)]
    text = STALLED.text(owner=owner, skips="{}", scale="{}", names="{}")
    first, *rest = text.split("{}")
    parts = zip([*values, joined], rest, strict=True)
    return tf.strings.join([first, *(piece for pair in parts for piece in pair)])
