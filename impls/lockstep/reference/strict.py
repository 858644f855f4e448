"""The names of :mod:`lockstep.reference` bound to the originals' exact behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, partialmethod
from typing import Any

import numpy.typing as npt

from lockstep import reference
from lockstep.interface import Array, Gradient
from lockstep.reference import (
    OPTIMIZER_SUMMARIES,
    Rows,
    Variable,
    get_regularization_loss,
    mp_regularizer_wrapper,
    pipeline_of,
    reduce_gradients,
)
from lockstep.reference.optimizers import Optimizer
from lockstep.spec.lr_policies import strict_module

__all__ = [
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
    "Rows",
    "Variable",
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
]


class MultitaskOptimizerWrapper(reference.MultitaskOptimizerWrapper):
    """The wrapper with ``strict=True``."""

    def __init__(self, opt: Optimizer) -> None:
        super().__init__(opt, strict=True)


class VariableClippingOptimizer(reference.VariableClippingOptimizer):
    """The wrapper with ``strict=True``."""

    __init__ = partialmethod(reference.VariableClippingOptimizer.__init__, strict=True)


class FixedLossScale(reference.FixedLossScale):
    """The loss scale with ``strict=True``."""

    __init__ = partialmethod(reference.FixedLossScale.__init__, strict=True)


class DynamicLossScale(reference.DynamicLossScale):
    """The loss scale with ``strict=True``."""

    __init__ = partialmethod(reference.DynamicLossScale.__init__, strict=True)


class MixedPrecisionLossScaleOptimizer(reference.MixedPrecisionLossScaleOptimizer):
    """The wrapper with ``strict=True``."""

    __init__ = partialmethod(
        reference.MixedPrecisionLossScaleOptimizer.__init__, strict=True
    )


class MixedPrecisionOptimizerWrapper(reference.MixedPrecisionOptimizerWrapper):
    """The wrapper with ``strict=True``."""

    __init__ = partialmethod(
        reference.MixedPrecisionOptimizerWrapper.__init__, strict=True
    )


class AutomaticLossScaler(reference.AutomaticLossScaler):
    """The scaler with ``strict=True``."""

    __init__ = partialmethod(reference.AutomaticLossScaler.__init__, strict=True)


class AGNCustomGetter(reference.AGNCustomGetter):
    """The getter with ``strict=True``."""

    __init__ = partialmethod(reference.AGNCustomGetter.__init__, strict=True)


class AGNOptimizer(reference.AGNOptimizer):
    """The wrapper with ``strict=True``."""

    __init__ = partialmethod(reference.AGNOptimizer.__init__, strict=True)


class NovoGrad(reference.NovoGrad):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(reference.NovoGrad.__init__, strict=True)


class AdagradOptimizer(reference.AdagradOptimizer):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(reference.AdagradOptimizer.__init__, strict=True)


class AdamOptimizer(reference.AdamOptimizer):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(reference.AdamOptimizer.__init__, strict=True)


class AdamWOptimizer(reference.AdamWOptimizer):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(reference.AdamWOptimizer.__init__, strict=True)


class FtrlOptimizer(reference.FtrlOptimizer):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(reference.FtrlOptimizer.__init__, strict=True)


class GradientDescentOptimizer(reference.GradientDescentOptimizer):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(reference.GradientDescentOptimizer.__init__, strict=True)


class MomentumOptimizer(reference.MomentumOptimizer):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(reference.MomentumOptimizer.__init__, strict=True)


class RMSPropOptimizer(reference.RMSPropOptimizer):
    """The optimizer with ``strict=True``."""

    __init__ = partialmethod(reference.RMSPropOptimizer.__init__, strict=True)


OPTIMIZER_CLS_NAMES = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "Momentum": MomentumOptimizer,
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
    "AdamW": AdamWOptimizer,
}
optimize_loss = partial(reference.optimize_loss, strict=True)
clip_gradients_by_global_norm = partial(
    reference.clip_gradients_by_global_norm, strict=True
)
clip_gradients_by_norm = partial(reference.clip_gradients_by_norm, strict=True)
post_process_gradients = partial(reference.post_process_gradients, strict=True)


def clip_by_global_norm(
    t_list: Sequence[Any],
    clip_norm: float,
    use_norm: npt.ArrayLike,
    name: str | None = None,
) -> tuple[list[Gradient], Array]:
    """Clip with ``strict=True``."""
    return reference.clip_by_global_norm(t_list, clip_norm, use_norm, strict=True)


lr_policies = strict_module(reference.lr_policies, f"{__name__}.lr_policies")
