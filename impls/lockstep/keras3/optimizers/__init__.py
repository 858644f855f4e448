"""The optimizers of TensorFlow 1 by name, with Keras' rules.

They are Keras' own optimizers with the constructors of ``tf.compat.v1.train``. Epsilons
and first values of slots are set so that the two rules coincide wherever Keras' has
room for it; each class says whether they do. All take the options of every optimizer of
Keras (``clipnorm``, ``use_ema``, ...) as keyword arguments, and as ``learning_rate`` a
number, a ``LearningRateSchedule`` or a callable. ``use_locking`` has no effect.
"""

from lockstep.keras3.optimizers.adam import AdamOptimizer, AdamWOptimizer
from lockstep.keras3.optimizers.adaptive import (
    AdagradOptimizer,
    FtrlOptimizer,
    RMSPropOptimizer,
)
from lockstep.keras3.optimizers.novograd import NovoGrad
from lockstep.keras3.optimizers.plain import (
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
