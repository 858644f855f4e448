"""The driver of the skeleton: what the families replay that it has tools for."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from harness.errors import no_device
from lockstep.interface import Array, Gradient
from lockstep.messages.optimizers.parameters import RULES
from lockstep.skeleton import Variable

__all__ = ["SkeletonDriver", "make_driver"]


class SkeletonDriver:
    """The methods of ``Driver`` without which no family can be replayed."""

    backend = "skeleton"

    def __init__(self, mode: str, names: ModuleType) -> None:
        self.mode, self.names = mode, names

    def variable(self, name: str, value: Array, kind: str | None = None) -> Variable:
        """Make a variable; there is only one kind."""
        return Variable(name, value.copy())

    def counter(self) -> Variable:
        """Make a step counter."""
        return Variable("global_step", np.zeros((), np.int64))

    def optimizer(
        self, name: str, args: Mapping[str, Any], variables: Sequence[Variable]
    ) -> Any:
        """Make the optimizer of TF1 rules with this name."""
        return getattr(self.names, RULES[name].class_name)(**args)

    def compile(
        self, function: Callable[[list[Any]], Any]
    ) -> Callable[[Sequence[Gradient]], Any]:
        """Return ``function``, which runs as it is called."""
        return lambda gradients: function(list(gradients))

    def read(self, variable: Variable) -> Array:
        """Return the value of a variable."""
        return variable.value

    def shared(self, optimizer: Any) -> dict[str, Array]:
        """Return no scalars: gradient descent has none."""
        return {}

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""

    def expects(self, error: str) -> tuple[type[BaseException], ...]:
        """Return the built-in exception of this name, from which ours derive."""
        return (getattr(builtins, error),)


def make_driver(mode: str, names: ModuleType, device: str = "cpu") -> SkeletonDriver:
    """Return the driver for ``mode`` and the names under test."""
    if device != "cpu":
        raise no_device("skeleton", device, "NumPy, which has only the CPU")
    return SkeletonDriver(mode, names)
