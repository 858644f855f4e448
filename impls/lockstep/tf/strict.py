"""The names of :mod:`lockstep.tf` bound to the originals' exact behaviour.

The drop-in target for old code: only its import line changes. Arguments are the
originals' and no others, see :mod:`lockstep.strict.originals`.
"""

from __future__ import annotations

import tensorflow as tf

from lockstep import tf as default
from lockstep.messages.schedules.lr_policies import strict_module
from lockstep.strict import optimizers as original_rules
from lockstep.strict import originals
from lockstep.strict.binding import bound
from lockstep.tf import (
    OPTIMIZER_SUMMARIES,
    AdagradOptimizer,
    GradientDescentOptimizer,
    LossScale,
    MomentumOptimizer,
    get_regularization_loss,
    pipeline_of,
    reduce_gradients,
)
from lockstep.tf.base.variable_map import VariableMap
from lockstep.tf.base.wrapper import old_name

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
    "LossScale",
    "MixedPrecisionLossScaleOptimizer",
    "MixedPrecisionOptimizerWrapper",
    "MomentumOptimizer",
    "MultitaskOptimizerWrapper",
    "NovoGrad",
    "RMSPropOptimizer",
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


Optimizer = tf.compat.v1.train.Optimizer


class MultitaskOptimizerWrapper(
    originals.MultitaskOptimizerWrapper[Optimizer], default.MultitaskOptimizerWrapper
):
    """The wrapper with ``strict=True``."""

    _opt = old_name("inner_optimizer")


class VariableClippingOptimizer(
    originals.VariableClippingOptimizer[Optimizer], default.VariableClippingOptimizer
):
    """The row-clipping wrapper with ``strict=True``."""

    _opt = old_name("inner_optimizer")
    _max_norm = old_name("max_norm")
    _vars_to_clip_dims = property(
        lambda own: VariableMap({k: list(v) for k, v in own.axes_by_variable.items()})
    )


class FixedLossScale(originals.FixedLossScale, default.FixedLossScale):
    """The fixed scale with ``strict=True``."""


class DynamicLossScale(originals.DynamicLossScale, default.DynamicLossScale):
    """The dynamic scale with ``strict=True``."""


class MixedPrecisionLossScaleOptimizer(
    originals.MixedPrecisionLossScaleOptimizer[Optimizer],
    default.MixedPrecisionLossScaleOptimizer,
):
    """The loss-scaling wrapper with ``strict=True``."""

    _optimizer = old_name("inner_optimizer")
    _loss_scale = old_name("scale_object")


class MixedPrecisionOptimizerWrapper(
    originals.MixedPrecisionOptimizerWrapper[Optimizer],
    default.MixedPrecisionOptimizerWrapper,
):
    """The wrapper of float32 masters with ``strict=True``."""


class AutomaticLossScaler(originals.AutomaticLossScaler, default.AutomaticLossScaler):
    """The scaler with ``strict=True``."""


class AGNCustomGetter(originals.AGNCustomGetter, default.AGNCustomGetter):
    """The getter with ``strict=True``."""


class AGNOptimizer(originals.AGNOptimizer[Optimizer], default.AGNOptimizer):
    """The wrapper of asynchronous workers with ``strict=True``."""


class AdamOptimizer(original_rules.AdamOptimizer, default.AdamOptimizer):
    """Adam with ``strict=True``: no dtype is refused."""


class RMSPropOptimizer(original_rules.RMSPropOptimizer, default.RMSPropOptimizer):
    """RMSProp with ``strict=True``: no dtype is refused."""


class AdamWOptimizer(original_rules.AdamWOptimizer, default.AdamWOptimizer):
    """AdamW with ``strict=True``: its arguments are not checked."""


class FtrlOptimizer(original_rules.FtrlOptimizer, default.FtrlOptimizer):
    """Ftrl with ``strict=True``: it fails at a rate of 0."""


class NovoGrad(original_rules.NovoGrad, default.NovoGrad):
    """NovoGrad with ``strict=True``: the second moment is never written back."""


OPTIMIZER_CLS_NAMES = {
    **default.OPTIMIZER_CLS_NAMES,
    "Adam": AdamOptimizer,
    "AdamW": AdamWOptimizer,
    "RMSProp": RMSPropOptimizer,
    "Ftrl": FtrlOptimizer,
}

clip_by_global_norm = bound(
    default.clip_by_global_norm, originals.clip_by_global_norm, __name__
)
clip_gradients_by_global_norm = bound(
    default.clip_gradients_by_global_norm,
    originals.clip_gradients_by_global_norm,
    __name__,
)
clip_gradients_by_norm = bound(
    default.clip_gradients_by_norm, originals.clip_gradients_by_norm, __name__
)
_clip_by_global_norm = clip_by_global_norm
_clip_gradients_by_norm = clip_gradients_by_norm
mp_regularizer_wrapper = bound(
    default.mp_regularizer_wrapper, originals.mp_regularizer_wrapper, __name__
)
optimize_loss = bound(default.optimize_loss, originals.optimize_loss, __name__)
post_process_gradients = bound(
    default.post_process_gradients, originals.post_process_gradients, __name__
)
lr_policies = strict_module(default.lr_policies, f"{__name__}.lr_policies")
