"""The reference as the harness drives it (see :class:`lockstep.interface.Host`)."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from lockstep.interface import Array, Gradient
from lockstep.reference.optimizers import Optimizer, RuleOptimizer
from lockstep.reference.variable import Variable
from lockstep.spec.errors import no_device
from lockstep.spec.optimizers import RULES

__all__ = ["NumpyHost", "make_host"]


class NumpyHost:
    """Arrays in, arrays out: nothing to convert."""

    backend = "reference"

    def __init__(self, face: str, names: ModuleType) -> None:
        self.face = face
        self.names = names

    def variable(self, name: str, value: Array, kind: str | None = None) -> Variable:
        """Make a variable; there is only one kind of them here."""
        return Variable(name, value)

    def key(self, variable: Variable) -> Variable:
        """Return the variable itself."""
        return variable

    def counter(self) -> Variable:
        """Make a step counter."""
        return Variable("global_step", 0, np.int64)

    def optimizer(
        self, name: str, args: Mapping[str, Any], variables: Sequence[Variable]
    ) -> Optimizer:
        """Make an optimizer by name."""
        made: Optimizer = getattr(self.names, RULES[name].class_name)(**args)
        return made

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
    ) -> Callable[[], list[Gradient]]:
        """Return a function of these gradients: losses here are their gradients."""

        def loss() -> list[Gradient]:
            found = list(gradients)
            for position, regularizer in (regularizers or {}).items():
                found[position] = found[position] + regularizer(variables[position])
            return found

        return loss

    def half_loss(
        self, variables: Sequence[Variable], gradients: Sequence[Gradient]
    ) -> Callable[[], list[Gradient]]:
        """Return the loss itself: gradients have no other dtype than their own."""
        return self.linear_loss(variables, gradients)

    def regularizer(self, strength: float) -> Callable[[Variable], Array]:
        """Return the gradient of strength * sum(x**2) / 2 as a function of x."""
        return lambda weight: np.asarray(np.float32(strength) * weight.value)

    def penalty(self, strength: float) -> Callable[[Variable], Array]:
        """Return strength * sum(x**2) / 2 as a function of x."""
        return lambda weight: np.asarray(
            np.float32(strength) * (np.square(weight.value).sum() / 2)
        )

    def regularization_losses(self, losses: Mapping[str, Any]) -> Mapping[str, Any]:
        """Hand the losses themselves over."""
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
        """Return a slot of the base optimizer."""
        return base_of(optimizer).get_slot(variable, name)

    def shared(self, optimizer: Any) -> dict[str, Array]:
        """Return the shared scalars of the base optimizer."""
        return dict(base_of(optimizer).shared)

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""

    def expects(self, error: str) -> tuple[type[BaseException], ...]:
        """Return the built-in exception of this name: ours derive from it."""
        return (getattr(builtins, error, Exception),)


def base_of(optimizer: Any) -> RuleOptimizer:
    """Return the innermost optimizer: the one that owns the slots."""
    while not isinstance(optimizer, RuleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def make_host(face: str, names: ModuleType, device: str = "cpu") -> NumpyHost:
    """Return the host for ``face`` and the names under test."""
    if device != "cpu":
        raise no_device("reference", device, "NumPy, which has only the CPU")
    return NumpyHost(face, names)
