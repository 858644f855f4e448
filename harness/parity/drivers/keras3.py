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

import builtins
import contextlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from harness.parity.drivers.numpy_values import to_numpy, to_tensor
from harness.parity.drivers.protocol import Worker
from harness.parity.drivers.tensors import Step, TensorDriver, use_device
from lockstep.errors import OutOfRangeError
from lockstep.interface import Array, Gradient
from lockstep.keras3.gradients import value_of
from lockstep.pipeline import base_of

__all__ = ["EagerDriver", "FunctionDriver", "make_driver"]


class EagerDriver(TensorDriver):
    """Operations run when they are called."""

    backend = "keras3"
    mode = "eager"

    def variable(self, name: str, value: Array, kind: str | None = None) -> Any:
        """Create a variable. There is only one kind here."""
        name = name.replace("/", "_")
        return keras.Variable(value, dtype=str(value.dtype), name=name)

    def value_of(self, variable: Any) -> Any:
        """Return the TensorFlow variable."""
        return value_of(variable)

    def key(self, variable: Any) -> Any:
        """Return a reference."""
        return variable.value.ref()

    def workers(self, named: Mapping[str, Array], count: int) -> list[Worker]:
        """Create workers that share one center."""
        workers: list[Worker] = []
        for _ in range(count):
            center = workers[0].getter.center if workers else None
            getter = self.names.AGNCustomGetter("/cpu:0", center=center)
            own = [self.variable(name, value) for name, value in named.items()]
            keys = [variable.value.ref() for variable in getter(own)]
            centers = [getter._global_map[key] for key in keys]
            accumulators = [getter._grad_map[key] for key in keys]
            scope = contextlib.nullcontext
            workers.append(Worker(own, centers, accumulators, getter, scope))
        return workers

    def getter_facts(self, named: Mapping[str, bool]) -> dict[str, Any]:
        """Create variables with a getter. There are no collections here."""
        getter = self.names.AGNCustomGetter("/cpu:0")
        variables = [
            keras.Variable([0.0], trainable=trainable, name=name.replace("/", "_"))
            for name, trainable in named.items()
        ]
        first, shared = getter(variables), dict(getter._global_map)
        again = all(a is b for a, b in zip(first, getter(variables), strict=True))
        return {
            "reuse_gives_same": again and getter._global_map == shared,
            "mapped_variables": len(getter._global_map),
        }

    def counter(self) -> Any:
        """Create a step counter."""
        return keras.Variable(0, dtype="int64", trainable=False, name="global_step")

    def step_object(self, result: Any) -> Any:
        """Return the step itself."""
        return result

    def regularization_losses(self, losses: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the losses as an argument."""
        return {"losses": losses}

    def regularization_functions(self) -> None:
        """Return None: there are no collections."""

    def tensor_name(self, tensor: Any) -> str:
        """Return an empty string: Keras has no names for tensors."""
        return ""

    def read(self, variable: Any) -> Array:
        """Return the value of a variable or tensor."""
        return np.asarray(value_of(variable))

    def slot(self, optimizer: Any, variable: Any, name: str) -> Array | None:
        """Return a slot of the base optimizer, or of the shared center."""
        getter = getattr(optimizer, "custom_getter", None)
        shared = None if getter is None else getter.center.slots.of(variable).get(name)
        if shared is not None:
            return self.read(shared)
        slot = base_of(optimizer).get_slot(variable, name)
        return None if slot is None else self.read(slot)

    def shared(self, optimizer: Any) -> dict[str, Array]:
        """Return nothing: Keras computes its powers from ``iterations``."""
        return {}

    def expects(self, error: str) -> tuple[type[BaseException], ...]:
        """Return the exception of this name, Python's or TensorFlow's.

        Where a kernel failed in the recording, our optimizers raise before the step.
        """
        builtin = getattr(builtins, error, None) or getattr(tf.errors, error, Exception)
        checked = (OutOfRangeError,) if error == "InvalidArgumentError" else ()
        return (builtin, *checked)


class FunctionDriver(EagerDriver):
    """Every pattern of gradients is traced into its own function."""

    mode = "function"

    def __init__(self, names: ModuleType) -> None:
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
    """Return a tensor for a variable, since functions cannot return variables."""
    return value.value + 0 if isinstance(value, keras.Variable) else value


def make_driver(mode: str, names: ModuleType, device: str = "cpu") -> EagerDriver:
    """Return the driver for ``mode`` and the names under test."""
    use_device(device)
    drivers = (EagerDriver, FunctionDriver)
    return {driver.mode: driver for driver in drivers}[mode](names)
