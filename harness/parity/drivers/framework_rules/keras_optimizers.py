"""Keras 3's own optimizers over NumPy variables.

They are the standard for the wrapper around ``keras.optimizers``. Golden data -> the
reference with TF1's rules verifies the logic of a wrapper. The reference with Keras'
rules -> the wrapper around Keras' optimizers verifies it on that backend.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.parity.drivers.framework_rules import keras_adam, keras_sgd
from lockstep.interface import Array, Rows
from lockstep.messages.optimizers.parameters import OPTIMIZERS
from lockstep.reference.optimizers.classes import RuleOptimizer
from lockstep.reference.optimizers.rules import adagrad, ftrl, rmsprop
from lockstep.reference.tensors.rows import densify
from lockstep.reference.tensors.variable import Variable

__all__ = [
    "KerasAdagrad",
    "KerasAdam",
    "KerasAdamW",
    "KerasFtrl",
    "KerasRMSprop",
    "KerasSGD",
]


class KerasOptimizer(RuleOptimizer):
    """A rule of Keras: sparse gradients become dense; variables share a counter."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.shared = {"iterations": np.zeros((), np.int64)}

    def update(self, gradient: Array | Rows, variable: Variable) -> None:
        """Apply the rule to every row. Rows that are not named have gradient 0."""
        if isinstance(gradient, Rows):
            gradient = densify(gradient, variable.shape)
        super().update(gradient, variable)

    def advance_shared(self) -> None:
        """Count the step."""
        self.shared["iterations"] = self.shared["iterations"] + 1


class FloatPolicy(KerasOptimizer):
    """A rule whose numbers Keras casts when it uses them."""

    def policy(self, dtype: np.dtype[Any]) -> Any:
        """Return the hyper-parameters without a cast."""
        return self.rule.Policy(**self.arguments)


class KerasSGD(FloatPolicy):
    """``keras.optimizers.SGD`` with momentum."""

    spec, rule = OPTIMIZERS["Momentum"], keras_sgd


class KerasAdam(FloatPolicy):
    """``keras.optimizers.Adam``."""

    spec, rule = OPTIMIZERS["Adam"], keras_adam


class KerasAdamW(FloatPolicy):
    """``keras.optimizers.AdamW``: the decay is multiplied by the rate."""

    spec, rule = OPTIMIZERS["AdamW"], keras_adam


class KerasAdagrad(KerasOptimizer):
    """``keras.optimizers.Adagrad`` with epsilon 0: TF1's dense rule."""

    spec, rule = OPTIMIZERS["Adagrad"], adagrad


class KerasRMSprop(KerasOptimizer):
    """``keras.optimizers.RMSprop`` with the mean square starting at 1: TF1's rule."""

    spec, rule = OPTIMIZERS["RMSProp"], rmsprop


class KerasFtrl(KerasOptimizer):
    """``keras.optimizers.Ftrl``: TF1's dense rule."""

    spec, rule = OPTIMIZERS["Ftrl"], ftrl
