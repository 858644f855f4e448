"""The executable specification in NumPy: naive, slow and easy to check by eye.

The wrappers and optimizers here update :class:`Variable` objects. A gradient is an
array, :class:`~lockstep.interface.Rows` (sparse) or None (absent). The base rules match
TensorFlow 1.15 bit for bit.
"""

import sys
from typing import TYPE_CHECKING

from lockstep.interface import Rows as Rows
from lockstep.messages.step.summaries import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.pipeline import pipeline_of as pipeline_of
from lockstep.reference.clipping.clip_by_norm import (
    clip_by_global_norm as clip_by_global_norm,
)
from lockstep.reference.clipping.clip_by_norm import (
    clip_gradients_by_norm as clip_gradients_by_norm,
)
from lockstep.reference.clipping.post_process import (
    post_process_gradients as post_process_gradients,
)
from lockstep.reference.clipping.variable_clipping import (
    VariableClippingOptimizer as VariableClippingOptimizer,
)
from lockstep.reference.masters.mixed_precision import (
    MixedPrecisionOptimizerWrapper as MixedPrecisionOptimizerWrapper,
)
from lockstep.reference.masters.regularizer import (
    mp_regularizer_wrapper as mp_regularizer_wrapper,
)
from lockstep.reference.multitask import (
    MultitaskOptimizerWrapper as MultitaskOptimizerWrapper,
)
from lockstep.reference.multitask import (
    clip_gradients_by_global_norm as clip_gradients_by_global_norm,
)
from lockstep.reference.optimizers.classes import AdagradOptimizer as AdagradOptimizer
from lockstep.reference.optimizers.classes import AdamOptimizer as AdamOptimizer
from lockstep.reference.optimizers.classes import AdamWOptimizer as AdamWOptimizer
from lockstep.reference.optimizers.classes import FtrlOptimizer as FtrlOptimizer
from lockstep.reference.optimizers.classes import (
    GradientDescentOptimizer as GradientDescentOptimizer,
)
from lockstep.reference.optimizers.classes import MomentumOptimizer as MomentumOptimizer
from lockstep.reference.optimizers.classes import RMSPropOptimizer as RMSPropOptimizer
from lockstep.reference.optimizers.novograd import NovoGrad as NovoGrad
from lockstep.reference.scaling.automatic_scaler import (
    AutomaticLossScaler as AutomaticLossScaler,
)
from lockstep.reference.scaling.loss_scale import DynamicLossScale as DynamicLossScale
from lockstep.reference.scaling.loss_scale import FixedLossScale as FixedLossScale
from lockstep.reference.scaling.loss_scale_optimizer import (
    MixedPrecisionLossScaleOptimizer as MixedPrecisionLossScaleOptimizer,
)
from lockstep.reference.schedules import lr_policies as lr_policies
from lockstep.reference.step.optimize_loss import (
    OPTIMIZER_CLS_NAMES as OPTIMIZER_CLS_NAMES,
)
from lockstep.reference.step.optimize_loss import optimize_loss as optimize_loss
from lockstep.reference.step.reduction import reduce_gradients as reduce_gradients
from lockstep.reference.step.regularization import (
    get_regularization_loss as get_regularization_loss,
)
from lockstep.reference.tensors.variable import Variable as Variable
from lockstep.reference.workers.agn import AGNOptimizer as AGNOptimizer
from lockstep.reference.workers.center import AGNCustomGetter as AGNCustomGetter
from lockstep.registry import BACKENDS

# So that `import lockstep.reference.lr_policies` finds it, too.
sys.modules[f"{__name__}.lr_policies"] = lr_policies

if not TYPE_CHECKING:  # Type checkers read the imports above instead.
    __all__ = list(BACKENDS["reference"].public_names())
