"""The executable specification in NumPy: naive, slow and easy to check by eye.

The wrappers and optimizers here update :class:`Variable` objects. A gradient is an
array, :class:`~lockstep.interface.Rows` (sparse) or None (absent). The base rules match
TensorFlow 1.15 bit for bit. Where ``strict`` decides, a comment names the section of
``docs/differences.md``.

It is not for training, so it has only what shows the rules: steps with their reports,
and slots. It counts no skipped steps, lists no state and averages over no ranks, and
its workers share one process.
"""

from typing import TYPE_CHECKING

from lockstep.interface import Rows as Rows
from lockstep.pipeline import pipeline_of as pipeline_of
from lockstep.reference import lr_policies as lr_policies
from lockstep.reference.agn import AGNCustomGetter as AGNCustomGetter
from lockstep.reference.agn import AGNOptimizer as AGNOptimizer
from lockstep.reference.arrays import Variable as Variable
from lockstep.reference.clipping import clip_by_global_norm as clip_by_global_norm
from lockstep.reference.clipping import clip_gradients_by_norm as clip_gradients_by_norm
from lockstep.reference.loss_scaling import AutomaticLossScaler as AutomaticLossScaler
from lockstep.reference.loss_scaling import DynamicLossScale as DynamicLossScale
from lockstep.reference.loss_scaling import FixedLossScale as FixedLossScale
from lockstep.reference.loss_scaling import (
    MixedPrecisionLossScaleOptimizer as MixedPrecisionLossScaleOptimizer,
)
from lockstep.reference.mixed_precision import (
    MixedPrecisionOptimizerWrapper as MixedPrecisionOptimizerWrapper,
)
from lockstep.reference.mixed_precision import (
    mp_regularizer_wrapper as mp_regularizer_wrapper,
)
from lockstep.reference.multitask import (
    MultitaskOptimizerWrapper as MultitaskOptimizerWrapper,
)
from lockstep.reference.multitask import (
    clip_gradients_by_global_norm as clip_gradients_by_global_norm,
)
from lockstep.reference.novograd import NovoGrad as NovoGrad
from lockstep.reference.optimize_loss import OPTIMIZER_CLS_NAMES as OPTIMIZER_CLS_NAMES
from lockstep.reference.optimize_loss import optimize_loss as optimize_loss
from lockstep.reference.optimizers import AdagradOptimizer as AdagradOptimizer
from lockstep.reference.optimizers import AdamOptimizer as AdamOptimizer
from lockstep.reference.optimizers import AdamWOptimizer as AdamWOptimizer
from lockstep.reference.optimizers import FtrlOptimizer as FtrlOptimizer
from lockstep.reference.optimizers import (
    GradientDescentOptimizer as GradientDescentOptimizer,
)
from lockstep.reference.optimizers import MomentumOptimizer as MomentumOptimizer
from lockstep.reference.optimizers import RMSPropOptimizer as RMSPropOptimizer
from lockstep.reference.post_process import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.reference.post_process import (
    get_regularization_loss as get_regularization_loss,
)
from lockstep.reference.post_process import (
    post_process_gradients as post_process_gradients,
)
from lockstep.reference.post_process import reduce_gradients as reduce_gradients
from lockstep.reference.variable_clipping import (
    VariableClippingOptimizer as VariableClippingOptimizer,
)
from lockstep.registry import BACKENDS

if not TYPE_CHECKING:  # Type checkers read the imports above instead.
    __all__ = list(BACKENDS["reference"].names_in(globals()))
