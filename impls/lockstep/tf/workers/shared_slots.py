"""The slots of shared variables, which every worker's optimizer uses in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["SharedSlots"]

v1 = tf.compat.v1


class SharedSlots(v1.train.Optimizer):
    """Holds the slots of shared variables; it updates nothing.

    Attributes:
        make: creates the slots of shared variables like a worker's optimizer; None
            before a worker sets it.
    """

    def __init__(self) -> None:
        super().__init__(use_locking=False, name="center")
        self.make: Callable[[list[tf.Variable]], None] | None = None

    def _create_or_restore_slot_variable(
        self, slot_variable_position: Any, slot_name: str, variable: tf.Variable
    ) -> None:
        """Restore a slot from a ``tf.train.Checkpoint``.

        TensorFlow would create it like its variable, which is wrong for some slots.
        """
        if self.make is not None and tf.executing_eagerly():
            self.make([variable])
        super()._create_or_restore_slot_variable(
            slot_variable_position, slot_name, variable
        )
