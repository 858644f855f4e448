"""The shared interface: the names of every backend, and what the harness drives.

Two kinds of thing stand here. :data:`EXPORTS` and :class:`Wrapper` say what users find
on every backend. :class:`Host` is the small protocol through which the harness makes
variables, hands gradients over and reads state back as NumPy arrays; each backend
implements it once, in its ``host`` module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy.typing as npt

__all__ = [
    "EXPORTS",
    "GATE_GRAPH",
    "GATE_NONE",
    "GATE_OP",
    "NO_EAGER_STEP",
    "NO_GRADIENTS",
    "NO_STEP",
    "Array",
    "Gradient",
    "Host",
    "Rows",
    "StepReport",
    "Worker",
    "Wrapper",
]

GATE_NONE, GATE_OP, GATE_GRAPH = 0, 1, 2

EXPORTS: tuple[str, ...] = (
    "OPTIMIZER_CLS_NAMES",
    "OPTIMIZER_SUMMARIES",
    "AGNCustomGetter",
    "AGNOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "AutomaticLossScaler",
    "DynamicLossScale",
    "FixedLossScale",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MixedPrecisionLossScaleOptimizer",
    "MixedPrecisionOptimizerWrapper",
    "MomentumOptimizer",
    "MultitaskOptimizerWrapper",
    "NovoGrad",
    "RMSPropOptimizer",
    "VariableClippingOptimizer",
    "clip_by_global_norm",
    "clip_gradients_by_global_norm",
    "clip_gradients_by_norm",
    "get_regularization_loss",
    "lr_policies",
    "mp_regularizer_wrapper",
    "optimize_loss",
    "pipeline_of",
    "post_process_gradients",
    "reduce_gradients",
)

Array: TypeAlias = npt.NDArray[Any]


class Rows(NamedTuple):
    """A sparse gradient as data: row ``values[k]`` belongs to row ``indices[k]``."""

    indices: Array
    values: Array
    dense_shape: tuple[int, ...] | None


Gradient: TypeAlias = Array | Rows | None


class StepReport(NamedTuple):
    """What the last step did, kept as ``last_step`` by every eager wrapper.

    ``last_step`` is never None and never old: before the first step it is
    :data:`NO_STEP` (:data:`NO_EAGER_STEP` where steps may run in graphs), and after a
    step in which no parameter had a gradient :data:`NO_GRADIENTS`.

    Attributes:
        applied: whether any variable was updated.
        reason: one sentence that says why nothing or not everything was updated.
        skipped: names of the variables that were left alone.
    """

    applied: bool
    reason: str
    skipped: tuple[str, ...]


NO_STEP = StepReport(False, "no step yet", ())
NO_EAGER_STEP = StepReport(
    False, "no step in eager mode yet; steps inside graphs are not reported", ()
)
NO_GRADIENTS = StepReport(False, "no parameter had a gradient", ())


class Wrapper(Protocol):
    """What every wrapper offers on every backend, beside its host's own interface."""

    def compute_gradients(
        self,
        loss: Any,
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:
        """Differentiate ``loss``: a list of (gradient or None, variable)."""
        ...

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Any:
        """Update the variables; ``global_step``, if given, is advanced by one."""
        ...

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Any:
        """Call ``compute_gradients`` and hand the result to ``apply_gradients``."""
        ...

    def get_name(self) -> str:
        """Return the optimizer's name."""
        ...

    def get_slot(self, var: Any, name: str) -> Any:
        """Return the state tensor ``name`` (a TF name) of ``var``, or None."""
        ...

    def get_slot_names(self) -> list[str]:
        """Return the TF names of the state tensors that exist."""
        ...

    def variables(self) -> list[Any]:
        """Return the optimizer's own state, as the host's variables or tensors."""
        ...


class Worker(NamedTuple):
    """One of several workers in a process, as a host sets it up for ``AGNOptimizer``.

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


class Host(Protocol):
    """A backend as the harness sees it: NumPy goes in, NumPy comes out.

    Attributes:
        backend: the backend's name, as in :data:`lockstep.registry.BACKENDS`.
        face: how operations run, such as ``eager`` or ``graph``.
        names: the module with the names under test (``lockstep.<backend>.strict``, or
            ``lockstep.<backend>`` for the default behaviour).
    """

    backend: str
    face: str
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
        """Say what an ``AGNCustomGetter`` makes of small variables of these names.

        Args:
            named: name -> whether trainable; just one is. A scope in a name, as in
                ``net/w``, is one of the host's, if it has such a thing.

        Returns:
            As far as the host has them: ``name/local``, ``name/global`` and
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
        """Turn a function of host gradients into one of NumPy gradients.

        ``function`` receives a list of the host's gradients (None where absent) and
        returns None, a tensor, an operation, a plain bool, or a nested list of these;
        what it returns comes back as the same nest of arrays (:class:`Rows` for a
        sparse one, None for an operation, which is run). Faces with graphs build
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
        inside of a function that is compiled, with the host's gradients.
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
        """Return a function that trains by what ``optimize_loss`` made.

        It takes the host's gradients and, if there is one, the flag ``skip_update``,
        and returns the loss; it is called inside of a function that is compiled.

        ``optimize(loss, skip_update)`` calls ``optimize_loss``. Where operations run as
        they are called, this is done at once, and only once: ``loss`` is a function, as
        is ``skip_update``, and what was made is called for each step. A graph calls it
        inside of the function that is compiled, with tensors.

        ``loss_of``: gradients -> what :meth:`linear_loss` returns.
        """
        ...

    def step_object(self, made: Any) -> Any:
        """Return what holds the state of a step, given what ``optimize_loss`` returned.

        It has ``optimizer``, ``global_step``, ``scaler`` (with ``state``, or None) and
        ``accumulators``: a list like ``var_list``, with None where there is none.
        """
        ...

    def regularizer(self, strength: float) -> Any:
        """Return a regularizer of this host: strength * sum(x**2) / 2 of a weight x."""
        ...

    def penalty(self, strength: float) -> Any:
        """Return the same regularizer, as one whose penalty can be added to others."""
        ...

    def regularization_losses(self, losses: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep penalties (name -> tensor or None) where this host keeps them.

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
        """Give back what the host holds: a session, or nothing."""
        ...

    def expects(self, error: str) -> tuple[type[BaseException], ...]:
        """Return the exception classes that stand for the recorded class name."""
        ...
