"""The optimizers of TensorFlow 1, and NovoGrad."""

from __future__ import annotations

from lockstep import errors
from lockstep.tests.kit import EVERYWHERE, Cells, Mistake

__all__ = ["MISTAKES", "PARALLEL", "SIGNATURES"]

TAIL = "use_locking=False, name={name!r}"

SIGNATURES = {
    "AdagradOptimizer": "learning_rate, initial_accumulator_value=0.1, "
    + TAIL.format(name="Adagrad"),
    "AdamOptimizer": "learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-08, "
    + TAIL.format(name="Adam"),
    "AdamWOptimizer": "weight_decay, learning_rate=0.001, beta1=0.9, beta2=0.999, "
    "epsilon=1e-08, " + TAIL.format(name="AdamW"),
    "FtrlOptimizer": "learning_rate, learning_rate_power=-0.5, "
    "initial_accumulator_value=0.1, l1_regularization_strength=0.0, "
    "l2_regularization_strength=0.0, use_locking=False, name='Ftrl', "
    "accum_name=None, linear_name=None, l2_shrinkage_regularization_strength=0.0",
    "GradientDescentOptimizer": "learning_rate, " + TAIL.format(name="GradientDescent"),
    "MomentumOptimizer": "learning_rate, momentum, use_locking=False, "
    "name='Momentum', use_nesterov=False",
    "RMSPropOptimizer": "learning_rate, decay=0.9, momentum=0.0, epsilon=1e-10, "
    "use_locking=False, centered=False, name='RMSProp'",
    "NovoGrad": "learning_rate=1.0, beta1=0.95, beta2=0.98, epsilon=1e-08, "
    "weight_decay=0.0, grad_averaging=False, " + TAIL.format(name="NovoGrad"),
}

MISTAKES: dict[str, Mistake] = {
    "a rate below 0": (
        lambda k: k.ls.NovoGrad(*k.first(k.variable()), -1.0),
        errors.OutOfRangeError,
        "learning_rate: expected .*, got -1.0",
    ),
}

PARALLEL: dict[str, Cells] = {
    "`NovoGrad`": EVERYWHERE,
    "the optimizers of TensorFlow 1": EVERYWHERE,
}
