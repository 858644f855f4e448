"""The shared interface: the names and methods that users find on every backend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy.typing as npt

GATE_NONE, GATE_OP, GATE_GRAPH = 0, 1, 2


WRAPPERS: Mapping[str, tuple[str, ...]] = {
    "AGNOptimizer": (),
    "MixedPrecisionLossScaleOptimizer": ("unscale", "finite check"),
    "MixedPrecisionOptimizerWrapper": ("unscale", "finite check"),
    "MultitaskOptimizerWrapper": ("zero filter",),
    "VariableClippingOptimizer": ("row clip",),
}
"""Wrapper -> the stages of ``pipeline.STAGES`` that it performs. One with a
``clip_norm`` also performs "norm" and "clip"."""

EXPORTS: tuple[str, ...] = (
    "OPTIMIZER_CLS_NAMES",
    "OPTIMIZER_SUMMARIES",
    "AGNCustomGetter",
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "AutomaticLossScaler",
    "DynamicLossScale",
    "FixedLossScale",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "NovoGrad",
    "RMSPropOptimizer",
    *WRAPPERS,
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
    """Report of the last step: the attribute ``last_step`` of every eager wrapper.

    ``last_step`` is never None and never out of date. Before the first step it is
    :data:`NO_STEP` (:data:`NO_EAGER_STEP` where steps may run in graphs). After a step
    in which no parameter had a gradient it is :data:`NO_GRADIENTS`.

    Attributes:
        applied: whether any variable was updated.
        reason: one sentence: why nothing or not everything was updated.
        skipped: names of the variables that were not updated.
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
    """Methods of the wrappers on every backend, besides the framework's own.

    The reference, which nobody trains with, has only ``compute_gradients``,
    ``apply_gradients``, ``minimize`` and ``get_slot``, without the arguments that have
    no effect there.
    """

    def compute_gradients(
        self,
        loss: Any,
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:
        """Differentiate ``loss``: a list of (gradient or None, variable).

        Args:
            loss: the loss to differentiate: a function, or a tensor in a graph.
            var_list: the variables.
            gate_gradients: how much of a graph's parallelism to allow; without effect
                elsewhere.
            aggregation_method: how a graph adds up the terms of a gradient; without
                effect elsewhere.
            colocate_gradients_with_ops: place gradients with their operations in a
                graph; without effect elsewhere.
            grad_loss: the upstream gradient of ``loss``; the default is 1.
        """
        ...

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Any:
        """Update the variables, and advance ``global_step`` by one if it is given.

        Args:
            grads_and_vars: iterable of (gradient, variable). A gradient is dense or
                sparse, with its variable's shape and dtype, or None.
            global_step: an integer counter.
            name: the name of the operation in a graph; without effect elsewhere.

        Raises:
            MalformedPairsError: a TypeError; an entry is no (gradient, variable).
            NoGradientsError: a ValueError; an empty list, or every gradient is None.
            ShapeError, DtypeError: a gradient does not fit its variable.
        """
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
        """Call ``compute_gradients`` and pass the result to ``apply_gradients``."""
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
        """Return the optimizer's own state, as the framework's variables or tensors."""
        ...
