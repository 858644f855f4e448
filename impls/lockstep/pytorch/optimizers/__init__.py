"""The optimizers of TensorFlow 1, as :class:`torch.optim.Optimizer` classes.

Each optimizer has the defaults, the order of operations and the bits of the optimizer
with the same name in ``tf.compat.v1.train`` (AdamW: ``tf.contrib.opt``). This matters
more here than speed; ``torch.optim`` has fused kernels of similar rules.

A parameter in float16 or bfloat16 has slots in float32, and the rule is computed in
float32. The parameter is rounded once per step. Under ``strict`` everything has the
parameter's dtype, as in TensorFlow 1.
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
