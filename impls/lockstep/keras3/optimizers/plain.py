"""Gradient descent and momentum: optimizers with the same rate for every element."""

from __future__ import annotations

from typing import Any, ClassVar

import keras

from lockstep.docstrings import documented
from lockstep.keras3.optimizers.rule_optimizer import RuleOptimizer
from lockstep.optimizers import OPTIMIZERS

__all__ = ["GradientDescentOptimizer", "MomentumOptimizer"]

registered = keras.saving.register_keras_serializable(package="lockstep")


@documented
@registered
class GradientDescentOptimizer(RuleOptimizer, keras.optimizers.SGD):
    """``keras.optimizers.SGD`` without momentum, which is TensorFlow 1's rule.

    ...

    Args:
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).
    """

    spec = OPTIMIZERS["GradientDescent"]
    renamed: ClassVar = {}
    fixed: ClassVar = {"momentum": 0.0, "nesterov": False}
    keeps_duplicates = True

    def __init__(
        self,
        learning_rate: Any,
        use_locking: bool = False,
        name: str = "GradientDescent",
        **options: Any,
    ) -> None:
        super().__init__({"learning_rate": learning_rate}, name, options)


@documented
@registered
class MomentumOptimizer(RuleOptimizer, keras.optimizers.SGD):
    """``keras.optimizers.SGD`` with momentum; the slot includes the rate.

    m = mu m - lr g; w += m (Nesterov: w += mu m - lr g). At a constant rate the
    variables equal those of TensorFlow 1, whose slot is a = mu a + g. Here the slot is
    -lr a, so after a change of the rate old gradients keep the old rate. Without
    momentum there is no slot.

    Args:
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).
    """

    spec = OPTIMIZERS["Momentum"]
    renamed: ClassVar = {"momentum": "momentum", "use_nesterov": "nesterov"}

    def __init__(
        self,
        learning_rate: Any,
        momentum: float,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
        **options: Any,
    ) -> None:
        arguments = {"learning_rate": learning_rate, "momentum": momentum}
        super().__init__({**arguments, "use_nesterov": use_nesterov}, name, options)
