"""The optimizers of TensorFlow 1, as :class:`torch.optim.Optimizer` classes.

An optimizer's name means the same here as in ``tf.compat.v1.train`` (AdamW: in
``tf.contrib.opt``): same defaults, same order of operations, same bits. They are
written for that, not for speed; ``torch.optim`` has fused kernels of similar rules.

A parameter in float16 or bfloat16 has slots in float32, where the rule is computed; the
parameter is rounded once a step. Under ``strict`` all is in the parameter's dtype, as
in TensorFlow 1.
"""

from lockstep.pytorch.optimizers.adam import AdamOptimizer, AdamWOptimizer
from lockstep.pytorch.optimizers.adaptive import (
    AdagradOptimizer,
    FtrlOptimizer,
    RMSPropOptimizer,
)
from lockstep.pytorch.optimizers.novograd import NovoGrad
from lockstep.pytorch.optimizers.plain import (
    GradientDescentOptimizer,
    MomentumOptimizer,
)

__all__ = [
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "NovoGrad",
    "RMSPropOptimizer",
]
