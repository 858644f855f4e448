"""Lockstep for Keras 3: optimizers of Keras, on its TensorFlow back end.

Everything here is a ``keras.optimizers.Optimizer`` or works on its (gradient, variable)
pairs. The wrappers take any optimizer of Keras, and ``fit``, callbacks and ``.keras``
files take the wrappers.
"""

from lockstep.registry import installed, missing_framework

if not installed("keras3"):
    raise missing_framework("keras3")

import keras

from lockstep.messages import keras3 as keras_host

if keras.config.backend() != "tensorflow":
    raise keras_host.other_backend(keras.config.backend())

from lockstep.keras3.clipping.clip_by_norm import (
    clip_by_global_norm,
    clip_gradients_by_norm,
)
from lockstep.keras3.clipping.clip_gradients import clip_gradients_by_global_norm
from lockstep.keras3.clipping.post_process import post_process_gradients
from lockstep.keras3.clipping.variable_clipping import VariableClippingOptimizer
from lockstep.keras3.masters.mixed_precision import MixedPrecisionOptimizerWrapper
from lockstep.keras3.masters.regularizer import mp_regularizer_wrapper
from lockstep.keras3.multitask import MultitaskOptimizerWrapper
from lockstep.keras3.optimizers import (
    AdagradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    NovoGrad,
    RMSPropOptimizer,
)
from lockstep.keras3.scaling.loss_scale import DynamicLossScale, FixedLossScale
from lockstep.keras3.scaling.loss_scale_optimizer import (
    MixedPrecisionLossScaleOptimizer,
)
from lockstep.keras3.scaling.loss_scaler import AutomaticLossScaler
from lockstep.keras3.schedules import lr_policies
from lockstep.keras3.schedules.lr_schedule import PolicySchedule
from lockstep.keras3.step.optimize_loss import OPTIMIZER_CLS_NAMES, optimize_loss
from lockstep.keras3.step.reduction import reduce_gradients
from lockstep.keras3.step.regularization import get_regularization_loss
from lockstep.keras3.workers.agn import AGNOptimizer
from lockstep.keras3.workers.center import AGNCustomGetter
from lockstep.messages.base.pipeline import pipeline_of
from lockstep.messages.step.summaries import OPTIMIZER_SUMMARIES

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
    "PolicySchedule",
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
]
