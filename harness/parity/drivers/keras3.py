"""The driver of Keras 3 on TensorFlow, in two modes.

======== =========================================================
eager    one operation at a time
function inside ``tf.function``
======== =========================================================

TensorFlow's graph rewriting (grappler's meta optimizer) reorders arithmetic.
``function`` disables it for the whole process, so use a new process for each mode, and
a new driver for each case. XLA is not a mode: it fuses multiplications and additions,
which no recording did.
"""

from __future__ import annotations

from typing import Any

import keras

from harness.parity.drivers.tensors import TensorDriver, TracedDriver, use_device
from lockstep.errors import OutOfRangeError
from lockstep.interface import Array
from lockstep.keras3.gradients import value_of


class EagerDriver(TensorDriver):
    """Operations run when they are called. Powers come from ``iterations``."""

    backend = "keras3"
    mode = "eager"

    def variable(
        self, name: str, value: Array, kind: str | None = None, trainable: bool = True
    ) -> Any:
        """Create a variable. There is only one kind here."""
        return keras.Variable(
            value,
            dtype=str(value.dtype),
            trainable=trainable,
            name=name.replace("/", "_"),
        )

    def counter(self) -> Any:
        """Create a step counter."""
        return keras.Variable(0, dtype="int64", trainable=False, name="global_step")

    def value_of(self, variable: Any) -> Any:
        """Return the TensorFlow variable."""
        return value_of(variable)

    def key(self, variable: Any) -> Any:
        """Return a reference."""
        return variable.value.ref()

    def center_slot(self, getter: Any, variable: Any, name: str) -> Any:
        """Return a slot of a shared variable."""
        return getter.center.slots.of(variable).get(name)

    def expects(self, error: str) -> tuple[type[BaseException], ...]:
        """Return the exception of this name, Python's or TensorFlow's.

        Where a kernel failed in the recording, our optimizers raise before the step.
        """
        checked = (OutOfRangeError,) if error == "InvalidArgumentError" else ()
        return (*super().expects(error), *checked)


class FunctionDriver(TracedDriver, EagerDriver):
    """Operations run inside ``tf.function``."""

    def returned(self, value: Any) -> Any:
        """Return a tensor for a variable, None for an operation."""
        is_variable = isinstance(value, keras.Variable)
        return value.value + 0 if is_variable else super().returned(value)


def make_driver(mode: str, names: Any, device: str = "cpu") -> EagerDriver:
    """Return the driver for ``mode`` and the names under test."""
    use_device(device)
    drivers = (EagerDriver, FunctionDriver)
    return {driver.mode: driver for driver in drivers}[mode](names)
