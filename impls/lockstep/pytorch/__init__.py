"""Lockstep for PyTorch: every class here is a :class:`torch.optim.Optimizer`.

``step``, ``zero_grad``, ``param_groups``, ``state_dict``, hooks, ``deepcopy``, learning
rate schedulers and ``GradScaler`` work as with any other optimizer; the methods of
``tf.compat.v1.train.Optimizer`` (``compute_gradients``, ``apply_gradients``,
``minimize``, ``get_slot``, ...) work besides. :mod:`lockstep.pytorch.strict` has the
same names with the originals' exact behaviour.
"""

from lockstep.registry import installed, missing_framework

if not installed("pytorch"):
    raise missing_framework("pytorch")

from lockstep.messages.base.pipeline import pipeline_of
from lockstep.messages.step.summaries import OPTIMIZER_SUMMARIES
from lockstep.pytorch.base.summaries import TensorBoardRecorder
from lockstep.pytorch.clipping.clip_by_norm import (
    clip_by_global_norm,
    clip_gradients_by_norm,
)
from lockstep.pytorch.clipping.post_process import post_process_gradients
from lockstep.pytorch.clipping.variable_clipping import VariableClippingOptimizer
from lockstep.pytorch.masters.mixed_precision import MixedPrecisionOptimizerWrapper
from lockstep.pytorch.masters.regularizer import mp_regularizer_wrapper
from lockstep.pytorch.multitask import (
    MultitaskOptimizerWrapper,
    clip_gradients_by_global_norm,
)
from lockstep.pytorch.optimizers import (
    AdagradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    NovoGrad,
    RMSPropOptimizer,
)
from lockstep.pytorch.scaling.automatic_scaler import AutomaticLossScaler
from lockstep.pytorch.scaling.loss_scale import DynamicLossScale, FixedLossScale
from lockstep.pytorch.scaling.loss_scale_optimizer import (
    MixedPrecisionLossScaleOptimizer,
)
from lockstep.pytorch.schedules import lr_policies
from lockstep.pytorch.schedules.lr_scheduler import PolicyLR
from lockstep.pytorch.step.optimize_loss import OPTIMIZER_CLS_NAMES, optimize_loss
from lockstep.pytorch.step.reduction import reduce_gradients
from lockstep.pytorch.step.regularization import get_regularization_loss
from lockstep.pytorch.workers.agn import AGNOptimizer
from lockstep.pytorch.workers.center import AGNCustomGetter

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
    "PolicyLR",
    "RMSPropOptimizer",
    "TensorBoardRecorder",
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
