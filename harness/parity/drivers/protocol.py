"""The protocol by which the harness drives a backend.

A driver creates variables, passes NumPy gradients, and reads state as NumPy arrays.
The driver of each backend is the module of this folder with the backend's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from lockstep.interface import Array, Gradient

__all__ = ["Driver", "Worker"]


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
    scope: Callable[[], AbstractContextManager[Any]]


class Driver(Protocol):
    """A uniform interface to a backend: NumPy arrays in, NumPy arrays out.

    Attributes:
        backend: the backend's name, as in :data:`lockstep.registry.BACKENDS`.
        mode: how operations run, such as ``eager`` or ``graph``.
        names: the module with the names under test (``lockstep.<backend>.strict``, or
            ``lockstep.<backend>`` for the default behaviour).
    """

    backend: str
    mode: str
    names: Any

    def variable(self, name: str, value: Array, kind: str | None = None) -> Any:
        """Create a trainable variable of ``kind`` ``ref``, ``resource`` or either."""
        ...

    def key(self, variable: Any) -> Any:
        """Return the key that represents ``variable`` in a mapping."""
        ...

    def workers(self, named: Mapping[str, Array], count: int) -> list[Worker]:
        """Create workers that share one center, with variables of these names.

        The workers' own variables and the shared ones start at the given values.
        """
        ...

    def getter_facts(self, named: Mapping[str, bool]) -> Mapping[str, Any]:
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
        ...

    def counter(self) -> Any:
        """Create an int64 scalar that starts at 0, to be used as ``global_step``."""
        ...

    def optimizer(
        self, name: str, args: Mapping[str, Any], variables: Sequence[Any]
    ) -> Any:
        """Create the optimizer of TF1 rules with this name, for these variables."""
        ...

    def compile(
        self, function: Callable[[list[Any]], Any]
    ) -> Callable[[Sequence[Gradient]], Any]:
        """Convert a function of the backend's gradients to one of NumPy gradients.

        ``function`` is called with a list of the backend's gradients (None if absent).
        It returns None, a tensor, an operation, a plain bool, or a nested list of
        these. The result has the same structure, with arrays for tensors
        (:class:`Rows` for sparse ones) and None for operations, which are run. A graph
        is built from ``function`` once for every pattern of gradients.
        """
        ...

    def linear_loss(
        self,
        variables: Sequence[Any],
        gradients: Sequence[Any],
        regularizers: Mapping[int, Callable[[Any], Any]] | None = None,
    ) -> Any:
        """Return a loss for ``compute_gradients`` whose gradients are these.

        It is the sum over variables of sum(variable * g), or sum(gather(variable,
        indices) * values). A variable with gradient None is left out. This is called
        inside a function that is compiled, with the backend's gradients.
        ``regularizers``: position of a variable -> function of this variable, whose
        value is added to the loss.
        """
        ...

    def half_loss(self, variables: Sequence[Any], gradients: Sequence[Any]) -> Any:
        """Return the same loss in float16, for variables in float16."""
        ...

    def optimized(
        self,
        optimize: Callable[[Any, Any], Any],
        loss_of: Callable[[Sequence[Any]], Any],
    ) -> Callable[..., Any]:
        """Return a function that runs a step of ``optimize_loss``.

        Its arguments are the backend's gradients and, if there is one, the flag
        ``skip_update``. It returns the loss. It is called inside a compiled function.

        ``optimize(loss, skip_update)`` calls ``optimize_loss``. In eager modes it is
        called immediately and only once: ``loss`` and ``skip_update`` are functions,
        and the result is called for each step. In graph modes it is called inside the
        compiled function, with tensors.

        ``loss_of``: gradients -> result of :meth:`linear_loss`.
        """
        ...

    def step_object(self, result: Any) -> Any:
        """Return the object with the state of a step, given ``optimize_loss``'s result.

        It has ``optimizer``, ``global_step``, ``scaler`` (with ``state``, or None) and
        ``accumulators``: a list like ``var_list``, with None for missing ones.
        """
        ...

    def regularizer(self, strength: float) -> Any:
        """Return a regularizer: strength * sum(x**2) / 2 of a weight x."""
        ...

    def penalty(self, strength: float) -> Any:
        """Return the same regularizer in a form whose penalties can be added up."""
        ...

    def regularization_losses(self, losses: Mapping[str, Any]) -> Mapping[str, Any]:
        """Store penalties (name -> tensor or None) in the backend's place for them.

        Return the keyword arguments with which ``get_regularization_loss`` finds them.
        """
        ...

    def regularization_functions(self) -> int | None:
        """Return the number of collected regularizers, or None without collections."""
        ...

    def tensor_name(self, tensor: Any) -> str:
        """Return the name of a tensor in a graph, or an empty string in other modes."""
        ...

    def read(self, variable: Any) -> Array:
        """Return the value of a variable, counter or tensor."""
        ...

    def slot(self, optimizer: Any, variable: Any, name: str) -> Array | None:
        """Return a slot of the wrapped base optimizer, or None if not created yet."""
        ...

    def shared(self, optimizer: Any) -> dict[str, Array]:
        """Return the base optimizer's scalars shared by all variables, as float32."""
        ...

    def close(self) -> None:
        """Release resources, such as a session."""
        ...

    def expects(self, error: str) -> tuple[type[BaseException], ...]:
        """Return the exception classes that correspond to the recorded class name."""
        ...
