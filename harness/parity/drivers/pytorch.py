"""The driver of PyTorch."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from harness.errors import no_device
from harness.parity.drivers.protocol import Worker
from lockstep.interface import Array, Gradient, Rows
from lockstep.optimizers import RULES
from lockstep.pipeline import base_of

__all__ = ["TorchDriver", "make_driver"]


class TorchDriver:
    """Converts arrays to tensors on ``device``, and results to arrays."""

    backend = "pytorch"

    def __init__(self, mode: str, names: ModuleType, device: str) -> None:
        self.mode = mode
        self.names = names
        self.device = device
        self.made: dict[Parameter, str] = {}

    def variable(self, name: str, value: Array, kind: str | None = None) -> Parameter:
        """Create a parameter. There is only one kind here."""
        parameter = Parameter(self.tensor(value))
        self.made[parameter] = name
        return parameter

    def key(self, variable: Parameter) -> Parameter:
        """Return the parameter itself."""
        return variable

    def workers(self, named: Mapping[str, Array], count: int) -> list[Worker]:
        """Create workers that share one center."""
        workers: list[Worker] = []
        for _ in range(count):
            center = workers[0].getter.center if workers else None
            getter = self.names.AGNCustomGetter(self.device, center=center)
            own = [self.variable(name, value) for name, value in named.items()]
            getter(zip(named, own, strict=True))
            centers = [getter._global_map[parameter] for parameter in own]
            accumulators = [getter._grad_map[parameter] for parameter in own]
            workers.append(Worker(own, centers, accumulators, getter, nullcontext))
        return workers

    def getter_facts(self, named: Mapping[str, bool]) -> dict[str, Any]:
        """Create parameters with a getter. Tensors have no names or collections."""
        getter = self.names.AGNCustomGetter(self.device)
        parameters = [
            (name, Parameter(torch.zeros(1, device=self.device), trainable))
            for name, trainable in named.items()
        ]
        first, shared = getter(parameters), dict(getter._global_map)
        again = all(a is b for a, b in zip(first, getter(parameters), strict=True))
        return {
            "reuse_gives_same": again and getter._global_map == shared,
            "mapped_variables": len(getter._global_map),
        }

    def counter(self) -> Tensor:
        """Create a step counter."""
        return torch.zeros((), dtype=torch.int64, device=self.device)

    def optimizer(
        self, name: str, args: Mapping[str, Any], variables: Sequence[Parameter]
    ) -> Optimizer:
        """Create an optimizer by name. Its parameters have the variables' names."""
        named = [(self.made[variable], variable) for variable in variables]
        named = named or [("nothing", Parameter(torch.zeros(())))]
        if name == "NovoGrad":  # It needs a rate here. 1.0 was recorded.
            args = {"learning_rate": 1.0, **args}
        return getattr(self.names, RULES[name].class_name)(named, **args)

    def compile(
        self, function: Callable[[list[Any]], Any]
    ) -> Callable[[Sequence[Gradient]], Any]:
        """Return ``function`` with arrays for tensors, in arguments and results."""

        def run(gradients: Sequence[Gradient]) -> Any:
            shapes = [tuple(p.shape) for p in self.made][: len(gradients)]
            shapes += [()] * (len(gradients) - len(shapes))
            pairs = zip(gradients, shapes, strict=True)
            return arrays(function([self.gradient(g, shape) for g, shape in pairs]))

        return run

    def linear_loss(
        self,
        variables: Sequence[Parameter],
        gradients: Sequence[Tensor | None],
        regularizers: Mapping[int, Callable[[Tensor], Tensor]] | None = None,
    ) -> Callable[[], Tensor]:
        """Return a function that returns the sum of sum(variable * gradient)."""

        def loss() -> Tensor:
            total = torch.zeros((), device=self.device)
            for variable, gradient in zip(variables, gradients, strict=True):
                if gradient is not None:
                    total = total + product(variable, gradient).sum()
            for position, regularizer in (regularizers or {}).items():
                total = total + regularizer(variables[position])
            return total

        return loss

    def half_loss(
        self, variables: Sequence[Parameter], gradients: Sequence[Tensor | None]
    ) -> Callable[[], Tensor]:
        """Return the same function in float16."""
        loss = self.linear_loss(variables, gradients)
        return lambda: loss().half()

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

    def regularizer(self, strength: float) -> Callable[[Tensor], Tensor]:
        """Return strength * sum(x**2) / 2 as a function of x."""
        return lambda weight: strength * (weight.square().sum() / 2)

    def penalty(self, strength: float) -> Callable[[Tensor], Tensor]:
        """Return the same function."""
        return self.regularizer(strength)

    def regularization_losses(self, losses: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the losses as an argument."""
        return {"losses": losses}

    def regularization_functions(self) -> None:
        """Return None: there are no collections."""

    def tensor_name(self, tensor: Any) -> str:
        """Return an empty string: tensors have no names."""
        return ""

    def read(self, variable: Any) -> Array:
        """Return the value of a tensor or a plain number as an array."""
        if not isinstance(variable, Tensor):
            return np.asarray(variable)
        return np.asarray(variable.detach().cpu())

    def slot(self, optimizer: Any, variable: Tensor, name: str) -> Array | None:
        """Return a slot of the base optimizer, or of the shared center."""
        getter = getattr(optimizer, "custom_getter", None)
        shared = None if getter is None else getter.center.slot(variable, name)
        if shared is not None:
            return self.read(shared)
        slot = base_of(optimizer).get_slot(variable, name)
        return None if slot is None else self.read(slot)

    def shared(self, optimizer: Any) -> dict[str, Array]:
        """Return the shared scalars of the base optimizer."""
        base = base_of(optimizer)
        group = base.param_groups[0]
        shared = {name: group[name] for name in base.spec.shared or {}}
        return {name: np.asarray(value, np.float32) for name, value in shared.items()}

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def expects(self, error: str) -> tuple[type[BaseException], ...]:
        """Return the built-in exception of this name. Ours are subclasses of it."""
        return (getattr(builtins, error, Exception),)

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
    if nest is None:
        return None
    if not isinstance(nest, Tensor):
        return np.asarray(nest)
    tensor = nest.detach().cpu()
    if tensor.is_sparse:
        indices, values = tensor._indices()[0].numpy(), tensor._values().numpy()
        return Rows(indices, values, tuple(tensor.shape))
    return tensor.numpy()


def make_driver(mode: str, names: ModuleType, device: str = "cpu") -> TorchDriver:
    """Return the driver for the only mode, the names under test and a torch device."""
    try:
        torch.zeros((), device=device)
    except (RuntimeError, AssertionError) as error:
        raise no_device("pytorch", device, str(error)) from error
    return TorchDriver(mode, names, device)
