"""Skipped steps: how many there were, in a row and in all, and who is told of a stall.

Checkpoints of 0.1.0 have one number, ``skipped_in_a_row``. It still loads, in a Saver
too, because the steps skipped before the current row are counted in its upper half.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from lockstep.messages.errors import warn_user
from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling.refusals import STALLED
from lockstep.tf.shared.scaling.scaled_step import ScaledStep
from lockstep.tf.shared.tensors.replica_copies import is_first_replica

__all__ = ["SkipCounts", "Skips"]

UPPER = 2**32
"""One step of the upper half; as many steps are never skipped in a row."""


class Skips(NamedTuple):
    """The count of skipped steps of a wrapper.

    Attributes:
        owner: the wrapper's name.
        variable: int64, 0-d: in a row + UPPER * all before this row.
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
        """Count a step; tell of a stall; return the operation.

        Args:
            step: the step, which was looked at.
            scale: returns the loss scale; its ``at_floor`` says whether it cannot sink
                any more, which a stall needs.
            at_floor: ``warn``: tell once; ``raise``: fail at each step; ``ignore``.
            patience: the steps skipped in a row that are a stall.
        """
        if not tf.executing_eagerly():
            return self._count_in_graph(step, scale, at_floor, patience)
        # Nearly every step follows an applied one and is applied.
        held = int(self.variable.read_value())
        before = held % UPPER
        skips = 0 if bool(step.finite) else before + 1
        if skips or before:
            self.variable.assign(held - before + (skips or before * UPPER))
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
        """Count; print once, or fail at each step, when patience is over.

        XLA knows no strings: what it compiles only counts.
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
    """The counts as a wrapper shows them; one that is strict has none."""

    _skips: Skips

    @property
    def skipped_in_a_row(self) -> tf.Tensor:
        """The steps skipped since the last one that was not: int64, 0-d."""
        return self._skips.in_a_row()

    @property
    def skipped_steps(self) -> tf.Tensor:
        """All steps that were skipped: int64, 0-d."""
        return self._skips.total()


def stalled_text(
    owner: str, step: ScaledStep, skips: tf.Tensor, scale: tf.Tensor
) -> tf.Tensor:
    """Return the sentence of ``words.stalled`` with this step's values: string, 0-d."""
    names = tf.boolean_mask(tf.constant(step.names_present), tf.logical_not(step.flags))
    joined = tf.strings.reduce_join(names, separator=", ")
    joined = tf.where(tf.size(names) > 0, joined, words.named([]))
    values = [tf.strings.as_string(skips), tf.strings.as_string(scale, shortest=True)]
    text = STALLED.text(owner=owner, skips="{}", scale="{}", names="{}")
    first, *rest = text.split("{}")
    parts = zip([*values, joined], rest, strict=True)
    return tf.strings.join([first, *(piece for pair in parts for piece in pair)])
