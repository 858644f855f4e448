"""Lockstep for Keras 3: optimizers of Keras, on its TensorFlow back end.

Each wrapper is a ``keras.optimizers.Optimizer``; functions such as clipping work on its
(gradient, variable) pairs. The wrappers accept any Keras optimizer. They work with
``fit``, callbacks and ``.keras`` files.
"""

from typing import TYPE_CHECKING

from lockstep.errors import MissingFrameworkError
from lockstep.registry import BACKENDS, installed, missing_framework

if not installed("keras3"):
    raise missing_framework("keras3")

import keras

if keras.config.backend() != "tensorflow":
    raise MissingFrameworkError(
        "lockstep.keras3: expected Keras on its TensorFlow back end, got "
        f"{keras.config.backend()}; set KERAS_BACKEND=tensorflow before Keras is "
        "imported."
    )

from lockstep.keras3 import lr_policies as lr_policies
from lockstep.keras3.agn import AGNCustomGetter as AGNCustomGetter
from lockstep.keras3.agn import AGNOptimizer as AGNOptimizer
from lockstep.keras3.loss_scaling import (
    MixedPrecisionLossScaleOptimizer as MixedPrecisionLossScaleOptimizer,
)
from lockstep.keras3.lr_policies import PolicySchedule as PolicySchedule
from lockstep.keras3.mixed_precision import (
    MixedPrecisionOptimizerWrapper as MixedPrecisionOptimizerWrapper,
)
from lockstep.keras3.mixed_precision import (
    mp_regularizer_wrapper as mp_regularizer_wrapper,
)
from lockstep.keras3.multitask import (
    MultitaskOptimizerWrapper as MultitaskOptimizerWrapper,
)
from lockstep.keras3.novograd import NovoGrad as NovoGrad
from lockstep.keras3.optimize_loss import OPTIMIZER_CLS_NAMES as OPTIMIZER_CLS_NAMES
from lockstep.keras3.optimize_loss import (
    get_regularization_loss as get_regularization_loss,
)
from lockstep.keras3.optimize_loss import optimize_loss as optimize_loss
from lockstep.keras3.optimizers import AdagradOptimizer as AdagradOptimizer
from lockstep.keras3.optimizers import AdamOptimizer as AdamOptimizer
from lockstep.keras3.optimizers import AdamWOptimizer as AdamWOptimizer
from lockstep.keras3.optimizers import FtrlOptimizer as FtrlOptimizer
from lockstep.keras3.optimizers import (
    GradientDescentOptimizer as GradientDescentOptimizer,
)
from lockstep.keras3.optimizers import MomentumOptimizer as MomentumOptimizer
from lockstep.keras3.optimizers import RMSPropOptimizer as RMSPropOptimizer
from lockstep.keras3.variable_clipping import (
    VariableClippingOptimizer as VariableClippingOptimizer,
)
from lockstep.pipeline import pipeline_of as pipeline_of
from lockstep.tf.shared.clipping import clip_by_global_norm as clip_by_global_norm
from lockstep.tf.shared.clipping import (
    clip_gradients_by_global_norm as clip_gradients_by_global_norm,
)
from lockstep.tf.shared.clipping import clip_gradients_by_norm as clip_gradients_by_norm
from lockstep.tf.shared.loss_scales import AutomaticLossScaler as AutomaticLossScaler
from lockstep.tf.shared.loss_scales import DynamicLossScale as DynamicLossScale
from lockstep.tf.shared.loss_scales import FixedLossScale as FixedLossScale
from lockstep.tf.shared.post_process import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.tf.shared.post_process import (
    post_process_gradients as post_process_gradients,
)
from lockstep.tf.shared.post_process import reduce_gradients as reduce_gradients

if not TYPE_CHECKING:  # A type checker reads what is imported as itself.
    __all__ = list(BACKENDS["keras3"].names_in(globals()))
