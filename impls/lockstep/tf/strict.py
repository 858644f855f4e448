"""The names of :mod:`lockstep.tf` bound to the originals' exact behaviour.

Old code only needs to change its import line. The arguments are exactly the
originals', see :mod:`lockstep.strict.originals`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from lockstep import tf as default
from lockstep.policies import strict_module
from lockstep.registry import BACKENDS
from lockstep.strict import optimizers as original_rules
from lockstep.strict import originals
from lockstep.strict.binding import bound, classes_in
from lockstep.tf import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.tf import AdagradOptimizer as AdagradOptimizer
from lockstep.tf import GradientDescentOptimizer as GradientDescentOptimizer
from lockstep.tf import LossScale as LossScale
from lockstep.tf import MomentumOptimizer as MomentumOptimizer
from lockstep.tf import get_regularization_loss as get_regularization_loss
from lockstep.tf import pipeline_of as pipeline_of
from lockstep.tf import reduce_gradients as reduce_gradients
from lockstep.tf.base.variable_map import VariableMap
from lockstep.tf.base.wrapper import old_name

if not TYPE_CHECKING:  # A type checker reads what is imported as itself.
    __all__ = list(BACKENDS["tf"].public_names(strict=True))


Optimizer = tf.compat.v1.train.Optimizer


class MultitaskOptimizerWrapper(
    originals.MultitaskOptimizerWrapper[Optimizer], default.MultitaskOptimizerWrapper
):
    """``tf.MultitaskOptimizerWrapper`` with ``strict=True``."""

    _opt = old_name("inner_optimizer")


class VariableClippingOptimizer(
    originals.VariableClippingOptimizer[Optimizer], default.VariableClippingOptimizer
):
    """``tf.VariableClippingOptimizer`` with ``strict=True``."""

    _opt = old_name("inner_optimizer")
    _max_norm = old_name("max_norm")
    _vars_to_clip_dims = property(
        lambda own: VariableMap({k: list(v) for k, v in own.axes_by_variable.items()})
    )


class FixedLossScale(originals.FixedLossScale, default.FixedLossScale):
    """``tf.FixedLossScale`` with ``strict=True``."""


class DynamicLossScale(originals.DynamicLossScale, default.DynamicLossScale):
    """``tf.DynamicLossScale`` with ``strict=True``."""


class MixedPrecisionLossScaleOptimizer(
    originals.MixedPrecisionLossScaleOptimizer[Optimizer],
    default.MixedPrecisionLossScaleOptimizer,
):
    """``tf.MixedPrecisionLossScaleOptimizer`` with ``strict=True``."""

    _optimizer = old_name("inner_optimizer")
    _loss_scale = old_name("scale_object")


class MixedPrecisionOptimizerWrapper(
    originals.MixedPrecisionOptimizerWrapper[Optimizer],
    default.MixedPrecisionOptimizerWrapper,
):
    """``tf.MixedPrecisionOptimizerWrapper`` with ``strict=True``."""


class AutomaticLossScaler(originals.AutomaticLossScaler, default.AutomaticLossScaler):
    """``tf.AutomaticLossScaler`` with ``strict=True``."""


class AGNCustomGetter(originals.AGNCustomGetter, default.AGNCustomGetter):
    """``tf.AGNCustomGetter`` with ``strict=True``."""


class AGNOptimizer(originals.AGNOptimizer[Optimizer], default.AGNOptimizer):
    """``tf.AGNOptimizer`` with ``strict=True``."""


class AdamOptimizer(original_rules.AdamOptimizer, default.AdamOptimizer):
    """Adam with ``strict=True``: accepts any dtype."""


class RMSPropOptimizer(original_rules.RMSPropOptimizer, default.RMSPropOptimizer):
    """RMSProp with ``strict=True``: accepts any dtype."""


class AdamWOptimizer(original_rules.AdamWOptimizer, default.AdamWOptimizer):
    """``tf.AdamWOptimizer`` with ``strict=True``."""


class FtrlOptimizer(original_rules.FtrlOptimizer, default.FtrlOptimizer):
    """``tf.FtrlOptimizer`` with ``strict=True``."""


class NovoGrad(original_rules.NovoGrad, default.NovoGrad):
    """``tf.NovoGrad`` with ``strict=True``."""


OPTIMIZER_CLS_NAMES = classes_in(globals(), default.OPTIMIZER_CLS_NAMES)

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
