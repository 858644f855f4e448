"""The driver of the reference."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from harness.errors import no_device
from harness.parity.drivers.protocol import Worker
from lockstep.interface import Array, Gradient
from lockstep.optimizers import RULES
from lockstep.pipeline import base_of
from lockstep.reference.agn import Center
from lockstep.reference.arrays import Variable
from lockstep.reference.optimizers import Optimizer

__all__ = ["NumpyDriver", "make_driver"]


class NumpyDriver:
    """A driver without conversions: the backend uses arrays itself."""

    backend = "reference"

    def __init__(self, mode: str, names: ModuleType) -> None:
        self.mode = mode
        self.names = names
        self.make_center: type[Center] = Center

    def variable(self, name: str, value: Array, kind: str | None = None) -> Variable:
        """Create a variable. There is only one kind here."""
        return Variable(name, value)

    def key(self, variable: Variable) -> Variable:
        """Return the variable itself."""
        return variable

    def workers(self, named: Mapping[str, Array], count: int) -> list[Worker]:
        """Create workers that share one center."""
        workers: list[Worker] = []
        for _ in range(count):
            center = workers[0].getter.center if workers else self.make_center()
            getter = self.names.AGNCustomGetter("/cpu:0", center=center)
            own = getter([Variable(name, value) for name, value in named.items()])
            centers = [getter._global_map[variable] for variable in own]
            accumulators = [getter._grad_map[variable] for variable in own]
            workers.append(Worker(own, centers, accumulators, getter, nullcontext))
        return workers

    def getter_facts(self, named: Mapping[str, bool]) -> dict[str, Any]:
        """Create variables with a getter. There are no collections here."""
        getter = self.names.AGNCustomGetter("/cpu:0")
        (name,) = [name for name, trainable in named.items() if trainable]
        (variable,) = getter([Variable(name, [0.0], np.float32)])
        shared = getter._global_map[variable]
        again = getter([variable]) == [variable] and getter._global_map == {
            variable: shared
        }
        return {
            "name/local": variable.name,
            "name/global": shared.name,
            "name/accumulator": getter._grad_map[variable].name,
            "reuse_gives_same": again,
            "mapped_variables": len(getter._global_map),
        }

    def counter(self) -> Variable:
        """Create a step counter."""
        return Variable("global_step", 0, np.int64)

    def optimizer(
        self, name: str, args: Mapping[str, Any], variables: Sequence[Variable]
    ) -> Optimizer:
        """Create an optimizer by name."""
        optimizer: Optimizer = getattr(self.names, RULES[name].class_name)(**args)
        return optimizer

    def compile(
        self, function: Callable[[list[Any]], Any]
    ) -> Callable[[Sequence[Gradient]], Any]:
        """Return a function that calls ``function`` with a list."""
        return lambda gradients: function(list(gradients))

    def linear_loss(
        self,
        variables: Sequence[Variable],
        gradients: Sequence[Gradient],
        regularizers: Mapping[int, Callable[[Any], Any]] | None = None,
    ) -> Callable[[], list[Any]]:
        """Return a function of these gradients: a loss here is its gradients."""

        def loss() -> list[Any]:
            parts: list[Any] = list(gradients)
            for position, regularizer in (regularizers or {}).items():
                weight, gradient = variables[position], gradients[position]
                parts[position] = partial(penalised, regularizer, weight, gradient)
            return parts

        return loss

    def half_loss(
        self, variables: Sequence[Variable], gradients: Sequence[Gradient]
    ) -> Callable[[], list[Any]]:
        """Return the loss itself, since gradients keep their own dtypes."""
        return self.linear_loss(variables, gradients)

    def optimized(
        self,
        optimize: Callable[[Any, Any], Any],
        loss_of: Callable[[Sequence[Any]], Any],
    ) -> Callable[..., Any]:
        """Create the step now. Its loss uses the gradients of each call."""
        current: list[Any] = []
        step = optimize(lambda: loss_of(current[0])(), lambda: current[1])

        def train(*arguments: Any) -> Any:
            current[:] = arguments
            return step()

        return train

    def step_object(self, result: Any) -> Any:
        """Return the step itself."""
        return result

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

    def regularization_losses(self, losses: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the losses as an argument."""
        return {"losses": losses}

    def regularization_functions(self) -> None:
        """Return None: there are no collections."""

    def tensor_name(self, tensor: Any) -> str:
        """Return an empty string: arrays have no names."""
        return ""

    def read(self, variable: Any) -> Array:
        """Return the value of a variable, or the array itself."""
        value = variable.value if isinstance(variable, Variable) else variable
        return np.asarray(value)

    def slot(self, optimizer: Any, variable: Variable, name: str) -> Array | None:
        """Return a slot of the base optimizer, or of the shared center."""
        getter = getattr(optimizer, "custom_getter", None)
        shared = None if getter is None else getter.center.slot(variable, name)
        found: Array | None = shared
        return base_of(optimizer).get_slot(variable, name) if found is None else found

    def shared(self, optimizer: Any) -> dict[str, Array]:
        """Return the shared scalars of the base optimizer."""
        return dict(base_of(optimizer).shared)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def expects(self, error: str) -> tuple[type[BaseException], ...]:
        """Return the built-in exception of this name. Ours are subclasses of it."""
        return (getattr(builtins, error, Exception),)


def penalised(
    regularizer: Callable[..., Any], weight: Variable, gradient: Any, upstream: Any
) -> Array:
    """Return d loss g + (d loss strength) w, each rounded as the original does."""
    return np.asarray(gradient * upstream + regularizer(weight, upstream))


def make_driver(mode: str, names: ModuleType, device: str = "cpu") -> NumpyDriver:
    """Return the driver for ``mode`` and the names under test."""
    if device != "cpu":
        raise no_device("reference", device, "NumPy, which has only the CPU")
    return NumpyDriver(mode, names)
