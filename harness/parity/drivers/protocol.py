"""The protocol by which the harness drives a backend.

A driver makes variables, hands NumPy gradients over and reads state back as NumPy
arrays. Each backend has one, in the module of its name beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from lockstep.interface import Array, Gradient

__all__ = ["Driver", "Worker"]


class Worker(NamedTuple):
    """One of several workers in a process, as a driver sets it up for ``AGNOptimizer``.

    Attributes:
        variables: the worker's own, trainable.
        centers: those that all workers share, in the same order.
        accumulators: where the worker gathers, in the same order.
        getter: the ``AGNCustomGetter`` that made them all.
        scope: returns a context in which what the worker has of its own is made: its
            optimizers, what they apply, its init op. A graph needs it to tell the
            workers' names apart.
    """

    variables: Sequence[Any]
    centers: Sequence[Any]
    accumulators: Sequence[Any]
    getter: Any
    scope: Callable[[], AbstractContextManager[Any]]


class Driver(Protocol):
    """A backend as the harness drives it: NumPy goes in, NumPy comes out.

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
        """Make a trainable variable of ``kind`` ``ref``, ``resource`` or either."""
        ...

    def key(self, variable: Any) -> Any:
        """Return what stands for ``variable`` as the key of a mapping."""
        ...

    def workers(self, named: Mapping[str, Array], count: int) -> list[Worker]:
        """Make workers that share one center, with variables of these names and values.

        Their own variables start at these values, and so do the shared ones.
        """
        ...

    def getter_facts(self, named: Mapping[str, bool]) -> Mapping[str, Any]:
        """Return what an ``AGNCustomGetter`` makes of small variables of these names.

        Args:
            named: name -> whether trainable; just one is. A scope in a name, as in
                ``net/w``, is one of the backend's, if it has such a thing.

        Returns:
            As far as the backend has them: ``name/local``, ``name/global`` and
            ``name/accumulator``, the names of what the trainable one became;
            ``collection/global``, ``collection/local`` and ``collection/trainable``,
            sorted names; ``reuse_gives_same``, whether the getter gives the same
            variable when it is asked again; ``mapped_variables``, how many it maps.
        """
        ...

    def counter(self) -> Any:
        """Make an int64 scalar that starts at 0, for use as ``global_step``."""
        ...

    def optimizer(
        self, name: str, args: Mapping[str, Any], variables: Sequence[Any]
    ) -> Any:
        """Make the optimizer of TF1 rules with this name, for these variables."""
        ...

    def compile(
        self, function: Callable[[list[Any]], Any]
    ) -> Callable[[Sequence[Gradient]], Any]:
        """Turn a function of the backend's gradients into one of NumPy gradients.

        ``function`` receives a list of the backend's gradients (None where absent) and
        returns None, a tensor, an operation, a plain bool, or a nested list of these;
        what it returns comes back as the same nest of arrays (:class:`Rows` for a
        sparse one, None for an operation, which is run). Graphs are built from
        ``function`` once for every pattern of gradients.
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
        indices) * values); a variable whose gradient is None is not in it. Called
        inside of a function that is compiled, with the backend's gradients.
        ``regularizers``: position of a variable -> the function whose value at this
        variable is added to the loss.
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

        It takes the backend's gradients and, if there is one, the flag ``skip_update``,
        and returns the loss; it is called inside of a function that is compiled.

        ``optimize(loss, skip_update)`` calls ``optimize_loss``. Where operations run as
        they are called, this is done at once, and only once: ``loss`` is a function, as
        is ``skip_update``, and the result is called for each step. A graph calls it
        inside of the function that is compiled, with tensors.

        ``loss_of``: gradients -> what :meth:`linear_loss` returns.
        """
        ...

    def step_object(self, result: Any) -> Any:
        """Return what holds the state of a step, given what ``optimize_loss`` returned.

        It has ``optimizer``, ``global_step``, ``scaler`` (with ``state``, or None) and
        ``accumulators``: a list like ``var_list``, with None where there is none.
        """
        ...

    def regularizer(self, strength: float) -> Any:
        """Return a regularizer: strength * sum(x**2) / 2 of a weight x."""
        ...

    def penalty(self, strength: float) -> Any:
        """Return the same regularizer, as one whose penalty can be added to others."""
        ...

    def regularization_losses(self, losses: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep penalties (name -> tensor or None) where this backend keeps them.

        Returns the keyword arguments by which ``get_regularization_loss`` finds them.
        """
        ...

    def regularization_functions(self) -> int | None:
        """Return how many regularizers are collected; None without collections."""
        ...

    def tensor_name(self, tensor: Any) -> str:
        """Return the name of a tensor in a graph; an empty string elsewhere."""
        ...

    def read(self, variable: Any) -> Array:
        """Return the value of a variable, counter or tensor."""
        ...

    def slot(self, optimizer: Any, variable: Any, name: str) -> Array | None:
        """Return a slot of the wrapped base optimizer; None if it is not made yet."""
        ...

    def shared(self, optimizer: Any) -> dict[str, Array]:
        """Return the base optimizer's scalars shared by all variables, as float32."""
        ...

    def close(self) -> None:
        """Give back what the driver holds: a session, or nothing."""
        ...

    def expects(self, error: str) -> tuple[type[BaseException], ...]:
        """Return the exception classes that stand for the recorded class name."""
        ...
