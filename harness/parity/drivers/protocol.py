"""How the harness drives a backend: NumPy arrays in, NumPy arrays out.

The driver of a backend is the module of this folder with the backend's name: a class
derived from :class:`Driver`, and ``make_driver(mode, names, device)``.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from lockstep.interface import Array, Gradient
from lockstep.optimizers import RULES
from lockstep.pipeline import base_of

Step = Callable[[Sequence[Gradient]], Any]
Regularizers = Mapping[int, Callable[[Any], Any]]
"""Position of a variable -> function whose value at this variable is a penalty."""


class Worker(NamedTuple):
    """One of several workers in a process, prepared by a driver for ``AGNOptimizer``.

    Attributes:
        variables: the worker's own, trainable.
        centers: the shared variables, in the same order.
        accumulators: the worker's sums of gradients, in the same order.
        getter: the ``AGNCustomGetter`` that created them all.
        scope: returns a context in which the worker's own objects are created: its
            optimizers, the operations that apply gradients, its init op. In a graph it
            keeps the names of different workers apart.
    """

    variables: Sequence[Any]
    centers: Sequence[Any]
    accumulators: Sequence[Any]
    getter: Any
    scope: Callable[[], AbstractContextManager[Any]] = nullcontext


class Driver:
    """A uniform interface to a backend, with what most backends do alike.

    A backend defines the methods that raise ``NotImplementedError`` here, and overrides
    others where its framework does otherwise.

    Attributes:
        backend: the backend's name, as in :data:`lockstep.registry.BACKENDS`.
        mode: how operations run, such as ``eager`` or ``graph``.
        names: the module with the names under test (``lockstep.<backend>.strict``, or
            ``lockstep.<backend>`` for the default behaviour).
    """

    backend: str
    mode: str
    device = "/cpu:0"

    def __init__(self, names: Any) -> None:
        self.names = names

    def variable(
        self, name: str, value: Array, kind: str | None = None, trainable: bool = True
    ) -> Any:
        """Create a variable of ``kind`` ``ref``, ``resource`` or either."""
        raise NotImplementedError

    def counter(self) -> Any:
        """Create an int64 scalar that starts at 0, to be used as ``global_step``."""
        raise NotImplementedError

    def read(self, variable: Any) -> Array:
        """Return the value of a variable, counter or tensor."""
        raise NotImplementedError

    def compile(self, function: Callable[[list[Any]], Any]) -> Step:
        """Convert a function of the backend's gradients to one of NumPy gradients.

        ``function`` is called with a list of the backend's gradients (None if absent).
        It returns None, a tensor, an operation, a plain bool, or a nested list or
        mapping of these. The result has the same structure, with arrays for tensors
        (:class:`Rows` for sparse ones) and None for operations, which are run. A graph
        is built from ``function`` once for every pattern of gradients.
        """
        raise NotImplementedError

    def linear_loss(
        self,
        variables: Sequence[Any],
        gradients: Sequence[Any],
        regularizers: Regularizers | None = None,
        half: bool = False,
    ) -> Any:
        """Return a loss for ``compute_gradients`` whose gradients are these.

        It is the sum over variables of sum(variable * g), or sum(gather(variable,
        indices) * values), and of the penalties. A variable with gradient None is left
        out. This is called inside a function that is compiled. ``half``: in float16.
        Where operations run when called, the loss is a function.
        """
        return lambda: self.linear(variables, gradients, regularizers or {}, half)

    def linear(self, variables: Any, gradients: Any, penalties: Any, half: bool) -> Any:
        """Return the value of this loss."""
        raise NotImplementedError

    def regularizer(self, strength: float) -> Callable[..., Any]:
        """Return a regularizer: strength * sum(x**2) / 2 of a weight x."""
        raise NotImplementedError

    def penalty(self, strength: float) -> Callable[[Any], Any]:
        """Return the same regularizer in a form whose penalties can be added up."""
        return self.regularizer(strength)

    def key(self, variable: Any) -> Any:
        """Return the key that represents ``variable`` in a mapping of ours."""
        return variable

    def optimizer(
        self, name: str, args: Mapping[str, Any], variables: Sequence[Any]
    ) -> Any:
        """Create the optimizer of TF1 rules with this name, for these variables."""
        return getattr(self.names, RULES[name].class_name)(**args)

    def slot(self, optimizer: Any, variable: Any, name: str) -> Array | None:
        """Return a slot of the base optimizer or the center; None if not created."""
        getter = getattr(optimizer, "custom_getter", None)
        slot = None if getter is None else self.center_slot(getter, variable, name)
        if slot is None:
            slot = self.base_of(optimizer).get_slot(variable, name)
        return None if slot is None else self.read(slot)

    def base_of(self, optimizer: Any) -> Any:
        """Return the innermost optimizer of a stack of wrappers."""
        return base_of(optimizer)

    def center_slot(self, getter: Any, variable: Any, name: str) -> Any:
        """Return a slot of a shared variable."""
        return getter.center.slot(variable, name)

    def shared(self, optimizer: Any) -> dict[str, Array]:
        """Return the base optimizer's scalars shared by all variables, as float32."""
        return {}

    def optimized(
        self,
        optimize: Callable[[Any, Any], Any],
        loss_of: Callable[[Sequence[Any]], Any],
    ) -> Callable[..., Any]:
        """Return a function that runs a step of ``optimize_loss``.

        Its arguments are the backend's gradients and, if there is one, the flag
        ``skip_update``. It returns the loss. It is called inside a compiled function.

        ``optimize(loss, skip_update)`` calls ``optimize_loss``. In eager modes, as
        here, it is called immediately and only once: ``loss`` and ``skip_update`` are
        functions, and the result is called for each step. In graph modes it is called
        inside the compiled function, with tensors.

        ``loss_of``: gradients -> result of :meth:`linear_loss`.
        """
        current: list[Any] = []
        step = optimize(lambda: loss_of(current[0])(), lambda: current[1])

        def train(*arguments: Any) -> Any:
            current[:] = arguments
            return step()

        return train

    def regularization_losses(self, losses: Mapping[str, Any]) -> Mapping[str, Any]:
        """Store penalties (name -> tensor or None) in the backend's place for them.

        Return the keyword arguments with which ``get_regularization_loss`` finds them.
        """
        return {"losses": losses}

    def regularization_functions(self) -> int | None:
        """Return the number of collected regularizers, or None without collections."""
        return None

    def tensor_name(self, tensor: Any) -> str:
        """Return the name of a tensor in a graph, or an empty string in other modes."""
        return ""

    def name_of_optimizer(self, optimizer: Any) -> str:
        """Return the name of an optimizer."""
        return str(optimizer.get_name())

    def name_of(self, variable: Any) -> str | None:
        """Return the name of a variable, or None if variables have none."""
        return None

    def workers(self, named: Mapping[str, Array], count: int) -> list[Worker]:
        """Create workers that share one center, with variables of these names.

        The workers' own variables and the shared ones start at the given values.
        """
        workers: list[Worker] = []
        for _ in range(count):
            getter = self.getter(workers[0].getter.center if workers else None)
            own = {name: self.variable(name, value) for name, value in named.items()}
            self.register(getter, own)
            workers.append(self.worker(getter, list(own.values())))
        return workers

    def getter(self, center: Any = None) -> Any:
        """Create a getter with its own center, or with the given one."""
        return self.names.AGNCustomGetter(self.device, center=center)

    def register(self, getter: Any, named: Mapping[str, Any]) -> Sequence[Any]:
        """Pass variables to a getter; return those that it returns."""
        registered: Sequence[Any] = getter(list(named.values()))
        return registered

    def worker(self, getter: Any, own: Sequence[Any], scope: Any = nullcontext) -> Any:
        """Collect what a getter created for a worker's own variables."""
        centers = [getter._global_map[self.key(v)] for v in own]
        accumulators = [getter._grad_map[self.key(v)] for v in own]
        return Worker(own, centers, accumulators, getter, scope)

    def getter_facts(self, named: Mapping[str, bool]) -> dict[str, Any]:
        """Return what an ``AGNCustomGetter`` creates for variables of these names.

        Args:
            named: name -> whether trainable. Exactly one is trainable. A name may have
                a scope, such as ``net/w``, if the backend has scopes.

        Returns:
            As far as the backend has them: ``name/local``, ``name/global`` and
            ``name/accumulator``, the names created for the trainable one;
            ``collection/global``, ``collection/local`` and ``collection/trainable``,
            sorted names; ``reuse_gives_same``, whether the getter returns the same
            variable in a second call; ``mapped_variables``, the number that it maps.
        """
        getter, zero = self.getter(), np.zeros(1, np.float32)
        variables = {
            name: self.variable(name, zero, trainable=trainable)
            for name, trainable in named.items()
        }
        first, again = (
            [*self.register(getter, variables), *getter._global_map.values()]
            for _ in range(2)
        )
        same = all(a is b for a, b in zip(first, again, strict=True))
        return self.facts_of(getter, same)

    def facts_of(self, getter: Any, same: bool) -> dict[str, Any]:
        """Return what a getter created for its only variable, with names if any."""
        facts = {"reuse_gives_same": same, "mapped_variables": len(getter._global_map)}
        (own,) = getter._global_map
        if self.name_of(own) is None:
            return facts
        return {
            "name/local": self.name_of(own),
            "name/global": self.name_of(getter._global_map[own]),
            "name/accumulator": self.name_of(getter._grad_map[own]),
            **facts,
        }

    def expects(self, error: str) -> tuple[type[BaseException], ...]:
        """Return the exception classes that correspond to the recorded class name.

        Our errors are subclasses of the built-in exception of this name.
        """
        return (getattr(builtins, error, Exception),)

    def close(self) -> None:
        """Release resources, such as a session."""
