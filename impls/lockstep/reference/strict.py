"""The names of :mod:`lockstep.reference` bound to the originals' exact behaviour.

Each has the original's arguments and no others. ``center`` and ``recorder`` replace
TensorFlow 1's shared variables in a graph and its collection of summaries.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from lockstep import reference
from lockstep.policies import strict_module
from lockstep.reference import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.reference import Rows as Rows
from lockstep.reference import Variable as Variable
from lockstep.reference import get_regularization_loss as get_regularization_loss
from lockstep.reference import mp_regularizer_wrapper as mp_regularizer_wrapper
from lockstep.reference import pipeline_of as pipeline_of
from lockstep.reference import reduce_gradients as reduce_gradients
from lockstep.registry import BACKENDS

Default = TypeVar("Default")


def original(default: Default, *ours: str, required: tuple[str, ...] = ()) -> Default:
    """Return a function, or a subclass, that calls ``default`` with ``strict=True``.

    ``ours``: arguments that the original does not have, beside ``strict``.
    ``required``: arguments that have a default value only here.
    """
    function: Any = default
    signature, empty = inspect.signature(function), inspect.Parameter.empty
    signature = signature.replace(
        parameters=[
            p.replace(default=empty) if p.name in required else p
            for p in signature.parameters.values()
            if p.name not in ("strict", *ours)
        ]
    )

    def bound(arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        return {**signature.bind(*arguments, **named).arguments, "strict": True}

    if not isinstance(default, type):

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            return function(**bound(arguments, named))

        result: Any = call
    else:

        def __init__(self: Any, *arguments: Any, **named: Any) -> None:
            function.__init__(self, **bound(arguments, named))

        body = {"__init__": __init__, "__doc__": default.__doc__}
        result = type(default.__name__, (default,), body)
    result.__signature__, result.__module__ = signature, __name__
    return result  # type: ignore[no-any-return]


MultitaskOptimizerWrapper = original(reference.MultitaskOptimizerWrapper)
VariableClippingOptimizer = original(reference.VariableClippingOptimizer)
AGNCustomGetter = original(reference.AGNCustomGetter)
AGNOptimizer = original(reference.AGNOptimizer, "commit")
FixedLossScale = original(reference.FixedLossScale)
DynamicLossScale = original(
    reference.DynamicLossScale,
    *("floor", "ceiling", "growth_factor", "backoff_factor", "hysteresis", "tolerance"),
)
MixedPrecisionLossScaleOptimizer = original(
    reference.MixedPrecisionLossScaleOptimizer, "clip_norm"
)
MixedPrecisionOptimizerWrapper = original(
    reference.MixedPrecisionOptimizerWrapper, "clip_norm"
)
AutomaticLossScaler = original(reference.AutomaticLossScaler)

AdagradOptimizer = original(reference.AdagradOptimizer)
AdamOptimizer = original(reference.AdamOptimizer)
AdamWOptimizer = original(reference.AdamWOptimizer)
FtrlOptimizer = original(reference.FtrlOptimizer)
GradientDescentOptimizer = original(reference.GradientDescentOptimizer)
MomentumOptimizer = original(reference.MomentumOptimizer)
NovoGrad = original(reference.NovoGrad)
RMSPropOptimizer = original(reference.RMSPropOptimizer)
OPTIMIZER_CLS_NAMES = {
    name: globals()[default.__name__]
    for name, default in reference.OPTIMIZER_CLS_NAMES.items()
}

clip_gradients_by_global_norm = original(
    reference.clip_gradients_by_global_norm, "error_if_nonfinite"
)
clip_by_global_norm = original(reference.clip_by_global_norm, required=("use_norm",))
clip_gradients_by_norm = original(reference.clip_gradients_by_norm)
_clip_by_global_norm = clip_by_global_norm
_clip_gradients_by_norm = clip_gradients_by_norm
post_process_gradients = original(reference.post_process_gradients)
optimize_loss = original(reference.optimize_loss)
lr_policies = strict_module(reference.lr_policies, f"{__name__}.lr_policies")

if not TYPE_CHECKING:  # Type checkers read the names above instead.
    __all__ = list(BACKENDS["reference"].names_in(globals(), strict=True))
