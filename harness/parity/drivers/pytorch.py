"""The driver of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from harness.errors import no_device
from harness.parity.drivers.protocol import Driver, Regularizers, Step
from lockstep.interface import Array, Gradient, Rows
from lockstep.pipeline import base_of


class TorchDriver(Driver):
    """Converts arrays to tensors on ``device``, and results to arrays."""

    backend = "pytorch"
    mode = "eager"

    def __init__(self, names: Any, device: str) -> None:
        super().__init__(names)
        self.device = device
        self.made: dict[Parameter, str] = {}

    def variable(
        self, name: str, value: Array, kind: str | None = None, trainable: bool = True
    ) -> Parameter:
        """Create a parameter. There is only one kind here."""
        parameter = Parameter(self.tensor(value), trainable)
        self.made[parameter] = name
        return parameter

    def counter(self) -> Tensor:
        """Create a step counter."""
        return torch.zeros((), dtype=torch.int64, device=self.device)

    def read(self, variable: Any) -> Array:
        """Return the value of a tensor or a plain number as an array."""
        if not isinstance(variable, Tensor):
            return np.asarray(variable)
        return np.asarray(variable.detach().cpu())

    def optimizer(
        self, name: str, args: Mapping[str, Any], variables: Sequence[Parameter]
    ) -> Optimizer:
        """Create an optimizer by name. Its parameters have the variables' names."""
        named = [(self.made[variable], variable) for variable in variables]
        named = named or [("nothing", Parameter(torch.zeros(())))]
        if name == "NovoGrad":  # It needs a rate here. 1.0 was recorded.
            args = {"learning_rate": 1.0, **args}
        return super().optimizer(name, {"params": named, **args}, variables)

    def compile(self, function: Callable[[list[Any]], Any]) -> Step:
        """Return ``function`` with arrays for tensors, in arguments and results."""

        def run(gradients: Sequence[Gradient]) -> Any:
            shapes = [tuple(p.shape) for p in self.made][: len(gradients)]
            shapes += [()] * (len(gradients) - len(shapes))
            pairs = zip(gradients, shapes, strict=True)
            return arrays(function([self.gradient(g, shape) for g, shape in pairs]))

        return run

    def linear(
        self,
        variables: Sequence[Parameter],
        gradients: Sequence[Tensor | None],
        penalties: Regularizers,
        half: bool,
    ) -> Tensor:
        """Return the sum of sum(variable * gradient), and of the penalties."""
        total = torch.zeros((), device=self.device)
        for variable, gradient in zip(variables, gradients, strict=True):
            if gradient is not None:
                total = total + product(variable, gradient).sum()
        for position, regularizer in penalties.items():
            total = total + regularizer(variables[position])
        return total.half() if half else total

    def regularizer(self, strength: float) -> Callable[[Tensor], Tensor]:
        """Return strength * sum(x**2) / 2 as a function of x."""
        return lambda weight: strength * (weight.square().sum() / 2)

    def shared(self, optimizer: Any) -> dict[str, Array]:
        """Return the shared scalars of the base optimizer."""
        base = base_of(optimizer)
        group = base.param_groups[0]
        return {n: np.asarray(group[n], np.float32) for n in base.spec.shared or {}}

    def register(self, getter: Any, named: Mapping[str, Any]) -> Sequence[Parameter]:
        """Pass parameters and their names to a getter."""
        return getter(named.items())

    def gradient(self, gradient: Gradient, shape: tuple[int, ...]) -> Tensor | None:
        """Return a gradient as a tensor. ``shape`` is used for rows without a shape.

        If neither gives the number of rows, the last named row is the last one.
        """
        if not isinstance(gradient, Rows):
            return None if gradient is None else self.tensor(gradient)
        height = int(gradient.indices.max(initial=-1)) + 1
        shape = shape or (height, *gradient.values.shape[1:])
        return torch.sparse_coo_tensor(
            self.tensor(gradient.indices)[None],
            self.tensor(gradient.values),
            gradient.dense_shape or shape,
            check_invariants=True,
        )

    def tensor(self, value: Array) -> Tensor:
        """Return a copy of an array as a tensor."""
        return torch.tensor(value, device=self.device)


def product(variable: Tensor, gradient: Tensor) -> Tensor:
    """Return variable * gradient; for a sparse gradient, only the rows it names."""
    if not gradient.is_sparse:
        return variable * gradient
    rows = PickedRows.apply(variable, gradient._indices()[0])
    return rows * gradient._values()


class PickedRows(torch.autograd.Function):
    """Rows of a tensor of any rank. The gradient has these rows, in this order.

    torch's ``embedding`` has such a gradient too, but only for matrices.
    """

    @staticmethod
    def forward(context: Any, variable: Tensor, indices: Tensor) -> Tensor:
        """Return ``variable[indices]``."""
        context.indices, context.shape = indices, variable.shape
        return variable[indices]

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient as a sparse tensor with duplicate rows."""
        indices, shape = context.indices[None], context.shape
        rows = torch.sparse_coo_tensor(
            indices, gradients[0], shape, check_invariants=False
        )
        return rows, None


def arrays(nest: Any) -> Any:
    """Return nested tensors as arrays with the same structure."""
    if isinstance(nest, list | tuple):
        return [arrays(entry) for entry in nest]
    if isinstance(nest, dict):
        return {name: arrays(entry) for name, entry in nest.items()}
    if nest is None:
        return None
    if not isinstance(nest, Tensor):
        return np.asarray(nest)
    tensor = nest.detach().cpu()
    if tensor.is_sparse:
        indices, values = tensor._indices()[0].numpy(), tensor._values().numpy()
        return Rows(indices, values, tuple(tensor.shape))
    return tensor.numpy()


def make_driver(mode: str, names: Any, device: str = "cpu") -> TorchDriver:
    """Return the driver for the only mode, the names under test and a torch device."""
    try:
        torch.zeros((), device=device)
    except (RuntimeError, AssertionError) as error:
        raise no_device("pytorch", device, str(error)) from error
    return TorchDriver(names, device)
