"""The shared interface: the names that users find on every backend."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy.typing as npt

from lockstep.pipeline import WRAPPERS

GATE_NONE, GATE_OP, GATE_GRAPH = 0, 1, 2

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
"""The public names. A backend may lack a wrapper that has no original."""

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
