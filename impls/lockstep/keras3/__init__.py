"""Lockstep for Keras 3: optimizers of Keras, on its TensorFlow back end.

Each wrapper is a ``keras.optimizers.Optimizer``; functions such as clipping work on its
(gradient, variable) pairs. The wrappers accept any Keras optimizer. They work with
``fit``, callbacks and ``.keras`` files.
"""

import sys
from typing import TYPE_CHECKING

from lockstep.registry import BACKENDS, installed, missing_framework

if not installed("keras3"):
    raise missing_framework("keras3")

import keras

from lockstep.messages import keras3 as keras_host

if keras.config.backend() != "tensorflow":
    raise keras_host.OTHER_BACKEND.error(found=keras.config.backend())

from lockstep.keras3.clipping.clip_by_norm import (
    clip_by_global_norm as clip_by_global_norm,
)
from lockstep.keras3.clipping.clip_by_norm import (
    clip_gradients_by_norm as clip_gradients_by_norm,
)
from lockstep.keras3.clipping.post_process import (
    post_process_gradients as post_process_gradients,
)
from lockstep.keras3.clipping.variable_clipping import (
    VariableClippingOptimizer as VariableClippingOptimizer,
)
from lockstep.keras3.masters.mixed_precision import (
    MixedPrecisionOptimizerWrapper as MixedPrecisionOptimizerWrapper,
)
from lockstep.keras3.masters.regularizer import (
    mp_regularizer_wrapper as mp_regularizer_wrapper,
)
from lockstep.keras3.multitask import (
    MultitaskOptimizerWrapper as MultitaskOptimizerWrapper,
)
from lockstep.keras3.multitask import (
    clip_gradients_by_global_norm as clip_gradients_by_global_norm,
)
from lockstep.keras3.optimizers import AdagradOptimizer as AdagradOptimizer
from lockstep.keras3.optimizers import AdamOptimizer as AdamOptimizer
from lockstep.keras3.optimizers import AdamWOptimizer as AdamWOptimizer
from lockstep.keras3.optimizers import FtrlOptimizer as FtrlOptimizer
from lockstep.keras3.optimizers import (
    GradientDescentOptimizer as GradientDescentOptimizer,
)
from lockstep.keras3.optimizers import MomentumOptimizer as MomentumOptimizer
from lockstep.keras3.optimizers import NovoGrad as NovoGrad
from lockstep.keras3.optimizers import RMSPropOptimizer as RMSPropOptimizer
from lockstep.keras3.scaling.loss_scale import DynamicLossScale as DynamicLossScale
from lockstep.keras3.scaling.loss_scale import FixedLossScale as FixedLossScale
from lockstep.keras3.scaling.loss_scale_optimizer import (
    MixedPrecisionLossScaleOptimizer as MixedPrecisionLossScaleOptimizer,
)
from lockstep.keras3.scaling.loss_scaler import (
    AutomaticLossScaler as AutomaticLossScaler,
)
from lockstep.keras3.schedules import lr_policies as lr_policies
from lockstep.keras3.schedules.lr_schedule import PolicySchedule as PolicySchedule
from lockstep.keras3.step.optimize_loss import (
    OPTIMIZER_CLS_NAMES as OPTIMIZER_CLS_NAMES,
)
from lockstep.keras3.step.optimize_loss import optimize_loss as optimize_loss
from lockstep.keras3.step.reduction import reduce_gradients as reduce_gradients
from lockstep.keras3.step.regularization import (
    get_regularization_loss as get_regularization_loss,
)
from lockstep.keras3.workers.agn import AGNOptimizer as AGNOptimizer
from lockstep.keras3.workers.center import AGNCustomGetter as AGNCustomGetter
from lockstep.messages.step.summaries import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.pipeline import pipeline_of as pipeline_of

# So that `import lockstep.keras3.lr_policies` finds it, too.
sys.modules[f"{__name__}.lr_policies"] = lr_policies

if not TYPE_CHECKING:  # A type checker reads what is imported as itself.
    __all__ = list(BACKENDS["keras3"].public_names())
