"""Code shared by the drivers of TensorFlow and Keras."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import tensorflow as tf

from harness.errors import no_device
from harness.parity.drivers import numpy_values
from harness.parity.drivers.numpy_values import to_numpy, to_tensor
from lockstep.interface import Gradient
from lockstep.optimizers import RULES

__all__ = ["Regularizers", "Step", "TensorDriver", "use_device"]

Step = Callable[[Sequence[Gradient]], Any]
Regularizers = Mapping[int, Callable[[Any], tf.Tensor]]


class TensorDriver:
    """The part of a driver that only needs tensors."""

    def __init__(self, names: ModuleType) -> None:
        self.names = names

    def value_of(self, variable: Any) -> Any:
        """Return the tensor that TensorFlow computes with. Each driver defines it."""
        raise NotImplementedError

    def optimizer(
        self, name: str, args: dict[str, Any], variables: Sequence[Any]
    ) -> Any:
        """Create an optimizer by name."""
        return getattr(self.names, RULES[name].class_name)(**args)

    def compile(self, function: Callable[[list[Any]], Any]) -> Step:
        """Convert gradients and results. There is nothing to compile."""

        def step(gradients: Sequence[Gradient]) -> Any:
            return to_numpy(function([to_tensor(gradient) for gradient in gradients]))

        return step

    def linear_loss(
        self,
        variables: Sequence[Any],
        gradients: Sequence[Any],
        regularizers: Regularizers | None = None,
    ) -> Any:
        """Return a callable loss whose gradients are these."""
        return lambda: self.linear(variables, gradients, regularizers)

    def half_loss(self, variables: Sequence[Any], gradients: Sequence[Any]) -> Any:
        """Return the same loss in float16."""
        return lambda: tf.cast(self.linear(variables, gradients), tf.float16)

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

    def linear(
        self,
        variables: Sequence[Any],
        gradients: Sequence[Any],
        regularizers: Regularizers | None = None,
    ) -> tf.Tensor:
        """Return a loss whose gradients are these, with its penalties."""
        entries = (regularizers or {}).items()
        penalties = [
            penalty_of(variables[position]) for position, penalty_of in entries
        ]
        values = [self.value_of(variable) for variable in variables]
        return numpy_values.linear(values, gradients, penalties)

    def regularizer(self, strength: float) -> Callable[[Any], tf.Tensor]:
        """Return strength * sum(x**2) / 2 as a function of x."""
        return lambda weight: strength * tf.nn.l2_loss(self.value_of(weight))

    def penalty(self, strength: float) -> Callable[[Any], tf.Tensor]:
        """Return the same function."""
        return self.regularizer(strength)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def use_device(device: str) -> None:
    """Make the GPUs visible to TensorFlow for ``cuda``, and none for ``cpu``.

    Raises:
        UnsupportedError: for another device, or if there is no GPU.
    """
    devices = tf.config.list_physical_devices("GPU")
    if device not in ("cpu", "cuda") or (device == "cuda" and not devices):
        raise no_device("tf", device, "only the CPU")
    tf.config.set_visible_devices(devices if device == "cuda" else [], "GPU")
