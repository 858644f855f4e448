"""Counts of skipped steps: in a row, and all, in one variable.

Checkpoints of 0.1.0 have one number, ``skipped_in_a_row``. It still loads, in a Saver
too, because the steps skipped before the current row are counted in its upper half.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["SkipCounts"]

UPPER = 2**32
"""One step of the upper half; as many steps are never skipped in a row."""


class SkipCounts:
    """The steps skipped in a row, to be read and assigned like a variable.

    Args:
        variable: int64, 0-d: in a row + UPPER * all before this row.
    """

    def __init__(self, variable: tf.Variable) -> None:
        self.variable = variable

    def read_value(self) -> tf.Tensor:
        """Return the steps skipped in a row: int64, 0-d."""
        return tf.math.floormod(self.variable.read_value(), UPPER)

    def total(self) -> tf.Tensor:
        """Return all skipped steps: int64, 0-d."""
        return self.read_value() + self.variable.read_value() // UPPER

    def assign(self, in_a_row: Any, read_value: bool = True) -> Any:
        """Count a step: 0 ends the row, one more than before goes on with it."""
        if tf.executing_eagerly():
            return self.assign_now(int(in_a_row))
        held, before = self.variable.read_value(), self.read_value()
        row = tf.where(tf.equal(in_a_row, 0), before * UPPER, in_a_row)
        return self.variable.assign(held - before + row, read_value=read_value)

    def assign_now(self, in_a_row: int) -> None:
        """Do so eagerly; nearly every step follows an applied one and is applied."""
        held = int(self.variable.read_value())
        before = held % UPPER
        if in_a_row or before:
            row = in_a_row or before * UPPER
            self.variable.assign(held - before + row)
