"""Lockstep for TensorFlow, v1-style: eager, ``tf.function``, graph + Session.

Everything here is a ``tf.compat.v1.train.Optimizer`` or works on its (gradient,
variable) pairs. The optimizers are TensorFlow's own, but for AdamW, which TensorFlow 2
left behind, Ftrl, which fails there at a rate of 0, and OpenSeq2Seq's NovoGrad. Adam
and RMSProp refuse variables whose dtype cannot hold their scalars.
"""

from lockstep.registry import installed, missing_framework

if not installed("tf"):
    raise missing_framework("tf")

import tensorflow as tf

from lockstep.messages.step.summaries import OPTIMIZER_SUMMARIES
from lockstep.tf.base.pipeline import pipeline_of
from lockstep.tf.clipping.clip_by_norm import (
    clip_by_global_norm,
    clip_gradients_by_norm,
)
from lockstep.tf.clipping.post_process import post_process_gradients
from lockstep.tf.clipping.variable_clipping import VariableClippingOptimizer
from lockstep.tf.masters.mixed_precision import MixedPrecisionOptimizerWrapper
from lockstep.tf.masters.regularizer import mp_regularizer_wrapper
from lockstep.tf.multitask import (
    MultitaskOptimizerWrapper,
    clip_gradients_by_global_norm,
)
from lockstep.tf.optimizers.adamw import AdamWOptimizer
from lockstep.tf.optimizers.ftrl import FtrlOptimizer
from lockstep.tf.optimizers.kernel_rules import AdamOptimizer, RMSPropOptimizer
from lockstep.tf.optimizers.novograd import NovoGrad
from lockstep.tf.scaling.loss_scale import DynamicLossScale, FixedLossScale, LossScale
from lockstep.tf.scaling.loss_scale_optimizer import MixedPrecisionLossScaleOptimizer
from lockstep.tf.scaling.loss_scaler import AutomaticLossScaler
from lockstep.tf.schedules import lr_policies
from lockstep.tf.step.optimize_loss import OPTIMIZER_CLS_NAMES, optimize_loss
from lockstep.tf.step.reduction import reduce_gradients
from lockstep.tf.step.regularization import get_regularization_loss
from lockstep.tf.workers.agn import AGNOptimizer
from lockstep.tf.workers.center import AGNCustomGetter

AdagradOptimizer = tf.compat.v1.train.AdagradOptimizer
GradientDescentOptimizer = tf.compat.v1.train.GradientDescentOptimizer
MomentumOptimizer = tf.compat.v1.train.MomentumOptimizer

# As OpenSeq2Seq spells them.
_clip_by_global_norm = clip_by_global_norm
_clip_gradients_by_norm = clip_gradients_by_norm

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
