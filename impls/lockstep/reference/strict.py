"""The names of :mod:`lockstep.reference` bound to the originals' exact behaviour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep import reference
from lockstep.policies import strict_module
from lockstep.reference import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.reference import Rows as Rows
from lockstep.reference import Variable as Variable
from lockstep.reference import get_regularization_loss as get_regularization_loss
from lockstep.reference import mp_regularizer_wrapper as mp_regularizer_wrapper
from lockstep.reference import pipeline_of as pipeline_of
from lockstep.reference import reduce_gradients as reduce_gradients
from lockstep.reference.optimizers.classes import Optimizer
from lockstep.registry import BACKENDS
from lockstep.strict import optimizers as original_rules
from lockstep.strict import originals
from lockstep.strict.binding import bound, classes_in

if not TYPE_CHECKING:  # Type checkers read the imports above instead.
    __all__ = list(BACKENDS["reference"].public_names(strict=True))


class MultitaskOptimizerWrapper(
    originals.MultitaskOptimizerWrapper[Optimizer], reference.MultitaskOptimizerWrapper
):
    """``reference.MultitaskOptimizerWrapper`` with ``strict=True``."""


class VariableClippingOptimizer(
    originals.VariableClippingOptimizer[Optimizer],
    reference.VariableClippingOptimizer,
):
    """``reference.VariableClippingOptimizer`` with ``strict=True``."""


class FixedLossScale(originals.FixedLossScale, reference.FixedLossScale):
    """``reference.FixedLossScale`` with ``strict=True``."""


class DynamicLossScale(originals.DynamicLossScale, reference.DynamicLossScale):
    """``reference.DynamicLossScale`` with ``strict=True``."""


class MixedPrecisionLossScaleOptimizer(
    originals.MixedPrecisionLossScaleOptimizer[Optimizer],
    reference.MixedPrecisionLossScaleOptimizer,
):
    """``reference.MixedPrecisionLossScaleOptimizer`` with ``strict=True``."""


class MixedPrecisionOptimizerWrapper(
    originals.MixedPrecisionOptimizerWrapper[Optimizer],
    reference.MixedPrecisionOptimizerWrapper,
):
    """``reference.MixedPrecisionOptimizerWrapper`` with ``strict=True``."""


class AutomaticLossScaler(originals.AutomaticLossScaler, reference.AutomaticLossScaler):
    """``reference.AutomaticLossScaler`` with ``strict=True``."""


class AGNCustomGetter(originals.AGNCustomGetter, reference.AGNCustomGetter):
    """``reference.AGNCustomGetter`` with ``strict=True``."""


class AGNOptimizer(originals.AGNOptimizer[Optimizer], reference.AGNOptimizer):
    """``reference.AGNOptimizer`` with ``strict=True``."""


class AdagradOptimizer(original_rules.AdagradOptimizer, reference.AdagradOptimizer):
    """``reference.AdagradOptimizer`` with ``strict=True``."""


class AdamOptimizer(original_rules.AdamOptimizer, reference.AdamOptimizer):
    """``reference.AdamOptimizer`` with ``strict=True``."""


class AdamWOptimizer(original_rules.AdamWOptimizer, reference.AdamWOptimizer):
    """``reference.AdamWOptimizer`` with ``strict=True``."""


class FtrlOptimizer(original_rules.FtrlOptimizer, reference.FtrlOptimizer):
    """``reference.FtrlOptimizer`` with ``strict=True``."""


class GradientDescentOptimizer(
    original_rules.GradientDescentOptimizer, reference.GradientDescentOptimizer
):
    """``reference.GradientDescentOptimizer`` with ``strict=True``."""


class MomentumOptimizer(original_rules.MomentumOptimizer, reference.MomentumOptimizer):
    """``reference.MomentumOptimizer`` with ``strict=True``."""


class NovoGrad(original_rules.NovoGrad, reference.NovoGrad):
    """``reference.NovoGrad`` with ``strict=True``."""


class RMSPropOptimizer(original_rules.RMSPropOptimizer, reference.RMSPropOptimizer):
    """``reference.RMSPropOptimizer`` with ``strict=True``."""


OPTIMIZER_CLS_NAMES = classes_in(globals(), reference.OPTIMIZER_CLS_NAMES)

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
