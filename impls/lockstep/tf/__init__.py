"""Lockstep for TensorFlow, v1-style: eager, ``tf.function``, graph + Session.

Each wrapper is a ``tf.compat.v1.train.Optimizer``; functions such as clipping work on
its (gradient, variable) pairs. The optimizers are TensorFlow's own, except for AdamW,
which TensorFlow 2 lacks, Ftrl, which fails there at a rate of 0, and OpenSeq2Seq's
NovoGrad. Adam and RMSProp raise for variables whose dtype cannot represent their
scalars. What has quirks takes ``strict=True``: it is then the name of
:mod:`lockstep.tf.strict`.
"""

from typing import TYPE_CHECKING

from lockstep.registry import BACKENDS, installed, missing_framework

if not installed("tf"):
    raise missing_framework("tf")

import tensorflow as tf

from lockstep.pipeline import pipeline_of as pipeline_of
from lockstep.tf.agn import AGNCustomGetter as AGNCustomGetter
from lockstep.tf.agn import AGNOptimizer as AGNOptimizer
from lockstep.tf.loss_scaling import DynamicLossScale as DynamicLossScale
from lockstep.tf.loss_scaling import FixedLossScale as FixedLossScale
from lockstep.tf.loss_scaling import (
    MixedPrecisionLossScaleOptimizer as MixedPrecisionLossScaleOptimizer,
)
from lockstep.tf.mixed_precision import (
    MixedPrecisionOptimizerWrapper as MixedPrecisionOptimizerWrapper,
)
from lockstep.tf.mixed_precision import mp_regularizer_wrapper as mp_regularizer_wrapper
from lockstep.tf.multitask import MultitaskOptimizerWrapper as MultitaskOptimizerWrapper
from lockstep.tf.novograd import NovoGrad as NovoGrad
from lockstep.tf.optimize_loss import OPTIMIZER_CLS_NAMES as OPTIMIZER_CLS_NAMES
from lockstep.tf.optimize_loss import get_regularization_loss as get_regularization_loss
from lockstep.tf.optimize_loss import optimize_loss as optimize_loss
from lockstep.tf.optimizers import AdamOptimizer as AdamOptimizer
from lockstep.tf.optimizers import AdamWOptimizer as AdamWOptimizer
from lockstep.tf.optimizers import FtrlOptimizer as FtrlOptimizer
from lockstep.tf.optimizers import RMSPropOptimizer as RMSPropOptimizer
from lockstep.tf.shared import clipping, post_process
from lockstep.tf.shared import lr_policies as lr_policies
from lockstep.tf.shared.loss_scales import AutomaticLossScaler as AutomaticLossScaler
from lockstep.tf.shared.loss_scales import LossScale as LossScale
from lockstep.tf.shared.post_process import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.tf.shared.post_process import reduce_gradients as reduce_gradients
from lockstep.tf.variable_clipping import (
    VariableClippingOptimizer as VariableClippingOptimizer,
)
from lockstep.tf.wrapper import with_strict

clip_by_global_norm = with_strict(clipping.clip_by_global_norm)
clip_gradients_by_global_norm = with_strict(clipping.clip_gradients_by_global_norm)
clip_gradients_by_norm = with_strict(clipping.clip_gradients_by_norm)
post_process_gradients = with_strict(post_process.post_process_gradients)

AdagradOptimizer = tf.compat.v1.train.AdagradOptimizer
GradientDescentOptimizer = tf.compat.v1.train.GradientDescentOptimizer
MomentumOptimizer = tf.compat.v1.train.MomentumOptimizer

# OpenSeq2Seq's spelling.
_clip_by_global_norm = clip_by_global_norm
_clip_gradients_by_norm = clip_gradients_by_norm

if not TYPE_CHECKING:  # A type checker reads what is imported as itself.
    __all__ = list(BACKENDS["tf"].names_in(globals()))
