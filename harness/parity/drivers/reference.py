"""The driver of the reference, which computes with arrays itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from harness.errors import no_device
from harness.parity.drivers.protocol import Driver, Regularizers, Step
from lockstep.interface import Array, Gradient
from lockstep.pipeline import base_of
from lockstep.reference.agn import Center
from lockstep.reference.arrays import Variable


class NumpyDriver(Driver):
    """A driver without conversions. A loss here is its gradients."""

    backend = "reference"
    mode = "numpy"
    make_center: type[Center] = Center

    def variable(
        self, name: str, value: Array, kind: str | None = None, trainable: bool = True
    ) -> Variable:
        """Create a variable. There is only one kind here."""
        return Variable(name, value)

    def counter(self) -> Variable:
        """Create a step counter."""
        return Variable("global_step", 0, np.int64)

    def read(self, variable: Any) -> Array:
        """Return the value of a variable, or the array itself."""
        value = variable.value if isinstance(variable, Variable) else variable
        return np.asarray(value)

    def name_of(self, variable: Variable) -> str:
        """Return the name of a variable."""
        return variable.name

    def name_of_optimizer(self, optimizer: Any) -> str:
        """Return the name of the rule, because optimizers have none here."""
        return str(base_of(optimizer).spec.name)

    def compile(self, function: Callable[[list[Any]], Any]) -> Step:
        """Return a function that calls ``function`` with a list."""
        return lambda gradients: function(list(gradients))

    def linear(
        self,
        variables: Sequence[Variable],
        gradients: Sequence[Gradient],
        penalties: Regularizers,
        half: bool,
    ) -> list[Any]:
        """Return these gradients. They keep their own dtypes."""
        parts: list[Any] = list(gradients)
        for position, regularizer in penalties.items():
            weight, gradient = variables[position], gradients[position]
            parts[position] = partial(penalised, regularizer, weight, gradient)
        return parts

    def regularizer(self, strength: float) -> Callable[..., Array]:
        """Return the gradient of strength * sum(x**2) / 2 as a function of x."""

        def gradient(weight: Variable, upstream: Any = 1) -> Array:
            return np.asarray(np.float32(strength) * upstream * weight.value)

        return gradient

    def penalty(self, strength: float) -> Callable[[Variable], Array]:
        """Return strength * sum(x**2) / 2 as a function of x."""
        return lambda weight: np.asarray(
            np.float32(strength) * (np.square(weight.value).sum() / 2)
        )

    def shared(self, optimizer: Any) -> dict[str, Array]:
        """Return the shared scalars of the base optimizer."""
        return dict(base_of(optimizer).shared)

    def getter(self, center: Center | None = None) -> Any:
        """Create a getter with its own center, or with the given one."""
        return super().getter(self.make_center() if center is None else center)

    def getter_facts(self, named: Mapping[str, bool]) -> dict[str, Any]:
        """Pass the trainable variable to a getter: all variables are, here."""
        return super().getter_facts({name: True for name, t in named.items() if t})


def penalised(
    regularizer: Callable[..., Any], weight: Variable, gradient: Any, upstream: Any
) -> Array:
    """Return d loss g + (d loss strength) w, each rounded as the original does."""
    return np.asarray(gradient * upstream + regularizer(weight, upstream))


def make_driver(mode: str, names: Any, device: str = "cpu") -> NumpyDriver:
    """Return the driver for the only mode and the names under test."""
    if device != "cpu":
        raise no_device("reference", device, "NumPy, which has only the CPU")
    return NumpyDriver(names)
