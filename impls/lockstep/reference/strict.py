"""The names of :mod:`lockstep.reference` bound to the originals' exact behaviour."""

from __future__ import annotations

from lockstep import reference
from lockstep.messages.schedules.lr_policies import strict_module
from lockstep.reference import (
    OPTIMIZER_SUMMARIES,
    Rows,
    Variable,
    get_regularization_loss,
    mp_regularizer_wrapper,
    pipeline_of,
    reduce_gradients,
)
from lockstep.reference.optimizers.classes import Optimizer
from lockstep.strict import optimizers as original_rules
from lockstep.strict import originals
from lockstep.strict.binding import bound

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
    "_clip_by_global_norm",
    "_clip_gradients_by_norm",
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


class MultitaskOptimizerWrapper(
    originals.MultitaskOptimizerWrapper[Optimizer], reference.MultitaskOptimizerWrapper
):
    """The wrapper with ``strict=True``."""


class VariableClippingOptimizer(
    originals.VariableClippingOptimizer[Optimizer],
    reference.VariableClippingOptimizer,
):
    """The row-clipping wrapper with ``strict=True``."""


class FixedLossScale(originals.FixedLossScale, reference.FixedLossScale):
    """The fixed scale with ``strict=True``."""


class DynamicLossScale(originals.DynamicLossScale, reference.DynamicLossScale):
    """The dynamic scale with ``strict=True``."""


class MixedPrecisionLossScaleOptimizer(
    originals.MixedPrecisionLossScaleOptimizer[Optimizer],
    reference.MixedPrecisionLossScaleOptimizer,
):
    """The loss-scaling wrapper with ``strict=True``."""


class MixedPrecisionOptimizerWrapper(
    originals.MixedPrecisionOptimizerWrapper[Optimizer],
    reference.MixedPrecisionOptimizerWrapper,
):
    """The wrapper of float32 masters with ``strict=True``."""


class AutomaticLossScaler(originals.AutomaticLossScaler, reference.AutomaticLossScaler):
    """The scaler with ``strict=True``."""


class AGNCustomGetter(originals.AGNCustomGetter, reference.AGNCustomGetter):
    """The getter with ``strict=True``."""


class AGNOptimizer(originals.AGNOptimizer[Optimizer], reference.AGNOptimizer):
    """The wrapper of asynchronous workers with ``strict=True``."""


class AdagradOptimizer(original_rules.AdagradOptimizer, reference.AdagradOptimizer):
    """The optimizer with ``strict=True``."""


class AdamOptimizer(original_rules.AdamOptimizer, reference.AdamOptimizer):
    """The optimizer with ``strict=True``."""


class AdamWOptimizer(original_rules.AdamWOptimizer, reference.AdamWOptimizer):
    """The optimizer with ``strict=True``."""


class FtrlOptimizer(original_rules.FtrlOptimizer, reference.FtrlOptimizer):
    """The optimizer with ``strict=True``."""


class GradientDescentOptimizer(
    original_rules.GradientDescentOptimizer, reference.GradientDescentOptimizer
):
    """The optimizer with ``strict=True``."""


class MomentumOptimizer(original_rules.MomentumOptimizer, reference.MomentumOptimizer):
    """The optimizer with ``strict=True``."""


class NovoGrad(original_rules.NovoGrad, reference.NovoGrad):
    """The optimizer with ``strict=True``."""


class RMSPropOptimizer(original_rules.RMSPropOptimizer, reference.RMSPropOptimizer):
    """The optimizer with ``strict=True``."""


OPTIMIZER_CLS_NAMES = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "Momentum": MomentumOptimizer,
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
    "AdamW": AdamWOptimizer,
}

clip_by_global_norm = bound(
    reference.clip_by_global_norm, originals.clip_by_global_norm, __name__
)
clip_gradients_by_global_norm = bound(
    reference.clip_gradients_by_global_norm,
    originals.clip_gradients_by_global_norm,
    __name__,
)
clip_gradients_by_norm = bound(
    reference.clip_gradients_by_norm, originals.clip_gradients_by_norm, __name__
)
_clip_by_global_norm = clip_by_global_norm
_clip_gradients_by_norm = clip_gradients_by_norm
optimize_loss = bound(reference.optimize_loss, originals.optimize_loss, __name__)
post_process_gradients = bound(
    reference.post_process_gradients, originals.post_process_gradients, __name__
)
lr_policies = strict_module(reference.lr_policies, f"{__name__}.lr_policies")
