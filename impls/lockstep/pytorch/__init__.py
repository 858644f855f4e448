"""Lockstep for PyTorch: every class here is a :class:`torch.optim.Optimizer`.

``step``, ``zero_grad``, ``param_groups``, ``state_dict``, hooks, ``deepcopy``, learning
rate schedulers and ``GradScaler`` work as with any other optimizer; the methods of
``tf.compat.v1.train.Optimizer`` (``compute_gradients``, ``apply_gradients``,
``minimize``, ``get_slot``, ...) work besides. There is one behaviour, the documented
one; ``lockstep.tf.strict`` has the originals' exact behaviour.
"""

from typing import TYPE_CHECKING

from lockstep.registry import BACKENDS, installed, missing_framework

if not installed("pytorch"):
    raise missing_framework("pytorch")

from lockstep.pipeline import pipeline_of as pipeline_of
from lockstep.pytorch import lr_policies as lr_policies
from lockstep.pytorch.agn import AGNCustomGetter as AGNCustomGetter
from lockstep.pytorch.agn import AGNOptimizer as AGNOptimizer
from lockstep.pytorch.clipping import clip_by_global_norm as clip_by_global_norm
from lockstep.pytorch.clipping import (
    clip_gradients_by_global_norm as clip_gradients_by_global_norm,
)
from lockstep.pytorch.clipping import clip_gradients_by_norm as clip_gradients_by_norm
from lockstep.pytorch.loss_scales import AutomaticLossScaler as AutomaticLossScaler
from lockstep.pytorch.loss_scales import DynamicLossScale as DynamicLossScale
from lockstep.pytorch.loss_scales import FixedLossScale as FixedLossScale
from lockstep.pytorch.loss_scaling import (
    MixedPrecisionLossScaleOptimizer as MixedPrecisionLossScaleOptimizer,
)
from lockstep.pytorch.lr_policies import PolicyLR as PolicyLR
from lockstep.pytorch.mixed_precision import (
    MixedPrecisionOptimizerWrapper as MixedPrecisionOptimizerWrapper,
)
from lockstep.pytorch.mixed_precision import (
    mp_regularizer_wrapper as mp_regularizer_wrapper,
)
from lockstep.pytorch.multitask import (
    MultitaskOptimizerWrapper as MultitaskOptimizerWrapper,
)
from lockstep.pytorch.novograd import NovoGrad as NovoGrad
from lockstep.pytorch.optimize_loss import OPTIMIZER_CLS_NAMES as OPTIMIZER_CLS_NAMES
from lockstep.pytorch.optimize_loss import optimize_loss as optimize_loss
from lockstep.pytorch.optimizers import AdagradOptimizer as AdagradOptimizer
from lockstep.pytorch.optimizers import AdamOptimizer as AdamOptimizer
from lockstep.pytorch.optimizers import AdamWOptimizer as AdamWOptimizer
from lockstep.pytorch.optimizers import FtrlOptimizer as FtrlOptimizer
from lockstep.pytorch.optimizers import (
    GradientDescentOptimizer as GradientDescentOptimizer,
)
from lockstep.pytorch.optimizers import MomentumOptimizer as MomentumOptimizer
from lockstep.pytorch.optimizers import RMSPropOptimizer as RMSPropOptimizer
from lockstep.pytorch.post_process import OPTIMIZER_SUMMARIES as OPTIMIZER_SUMMARIES
from lockstep.pytorch.post_process import TensorBoardRecorder as TensorBoardRecorder
from lockstep.pytorch.post_process import (
    get_regularization_loss as get_regularization_loss,
)
from lockstep.pytorch.post_process import (
    post_process_gradients as post_process_gradients,
)
from lockstep.pytorch.post_process import reduce_gradients as reduce_gradients
from lockstep.pytorch.variable_clipping import (
    VariableClippingOptimizer as VariableClippingOptimizer,
)

if not TYPE_CHECKING:  # A type checker reads what is imported as itself.
    __all__ = list(BACKENDS["pytorch"].names_in(globals()))
