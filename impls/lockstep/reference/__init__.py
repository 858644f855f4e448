"""The executable specification in NumPy: naive, slow and easy to check by eye.

The wrappers and optimizers here work on :class:`Variable` boxes and on gradients that
are arrays, :class:`~lockstep.interface.Rows` (sparse) or None (absent). The base rules
are those of TensorFlow 1.15 to the bit.
"""

from lockstep.interface import Rows
from lockstep.messages.base.pipeline import pipeline_of
from lockstep.messages.step.summaries import OPTIMIZER_SUMMARIES
from lockstep.reference.clipping.clip_by_norm import (
    clip_by_global_norm,
    clip_gradients_by_norm,
)
from lockstep.reference.clipping.post_process import post_process_gradients
from lockstep.reference.clipping.variable_clipping import VariableClippingOptimizer
from lockstep.reference.masters.mixed_precision import MixedPrecisionOptimizerWrapper
from lockstep.reference.masters.regularizer import mp_regularizer_wrapper
from lockstep.reference.multitask import (
    MultitaskOptimizerWrapper,
    clip_gradients_by_global_norm,
)
from lockstep.reference.optimizers.classes import (
    AdagradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    RMSPropOptimizer,
)
from lockstep.reference.optimizers.novograd import NovoGrad
from lockstep.reference.scaling.automatic_scaler import AutomaticLossScaler
from lockstep.reference.scaling.loss_scale import DynamicLossScale, FixedLossScale
from lockstep.reference.scaling.loss_scale_optimizer import (
    MixedPrecisionLossScaleOptimizer,
)
from lockstep.reference.schedules import lr_policies
from lockstep.reference.step.optimize_loss import OPTIMIZER_CLS_NAMES, optimize_loss
from lockstep.reference.step.reduction import reduce_gradients
from lockstep.reference.step.regularization import get_regularization_loss
from lockstep.reference.tensors.variable import Variable
from lockstep.reference.workers.agn import AGNOptimizer
from lockstep.reference.workers.center import AGNCustomGetter

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
