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

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from harness.parity.drivers.protocol import Step
from harness.parity.drivers.tensors import (
    TensorDriver,
    to_numpy,
    to_tensor,
    use_device,
)
from lockstep.errors import OutOfRangeError
from lockstep.interface import Array, Gradient
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

    def of_getter(self, mapping: Mapping[Any, Any], variable: Any) -> Any:
        """Return the entry of a variable: the keys are references."""
        return mapping[variable.value.ref()]

    def center_slot(self, getter: Any, variable: Any, name: str) -> Any:
        """Return a slot of a shared variable."""
        return getter.center.slots.of(variable).get(name)

    def expects(self, error: str) -> tuple[type[BaseException], ...]:
        """Return the exception of this name, Python's or TensorFlow's.

        Where a kernel failed in the recording, our optimizers raise before the step.
        """
        checked = (OutOfRangeError,) if error == "InvalidArgumentError" else ()
        return (*super().expects(error), *checked)


class FunctionDriver(EagerDriver):
    """Every pattern of gradients is traced into its own function."""

    mode = "function"

    def __init__(self, names: Any) -> None:
        super().__init__(names)
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

    def compile(self, function: Callable[[list[Any]], Any]) -> Step:
        """Trace ``function`` once for every pattern."""

        def unless_variable(*gradients: Any) -> Any:
            return tf.nest.map_structure(as_tensor, function(list(gradients)))

        traced = tf.function(unless_variable, autograph=False)

        def step(gradients: Sequence[Gradient]) -> Any:
            return to_numpy(traced(*map(to_tensor, gradients)))

        return step


def as_tensor(value: Any) -> Any:
    """Return a tensor for a variable, None for an operation; functions cannot."""
    if isinstance(value, tf.Operation):
        return None
    return value.value + 0 if isinstance(value, keras.Variable) else value


def make_driver(mode: str, names: Any, device: str = "cpu") -> EagerDriver:
    """Return the driver for ``mode`` and the names under test."""
    use_device(device)
    drivers = (EagerDriver, FunctionDriver)
    return {driver.mode: driver for driver in drivers}[mode](names)
