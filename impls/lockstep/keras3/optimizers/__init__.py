"""The optimizers of TensorFlow 1 by name, with Keras' rules.

They are Keras' own optimizers with the constructors of ``tf.compat.v1.train``. Epsilons
and initial values of slots are set so that both rules are equal where Keras' rule
allows it; each class says whether they are. All accept the options of every Keras
optimizer (``clipnorm``, ``use_ema``, ...) as keyword arguments. ``learning_rate`` is a
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
