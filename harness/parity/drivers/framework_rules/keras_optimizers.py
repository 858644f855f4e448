"""Keras 3's own Adam over NumPy variables, and what its optimizers share.

They are the standard for the wrapper around ``keras.optimizers``. Golden data -> the
reference with TF1's rules verifies the logic of a wrapper. The reference with Keras'
rules -> the wrapper around Keras' optimizers verifies it on that backend.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.parity.drivers.framework_rules import keras_adam
from lockstep.interface import Array, Rows
from lockstep.optimizers import OPTIMIZERS
from lockstep.reference.optimizers.classes import RuleOptimizer
from lockstep.reference.tensors.rows import densify
from lockstep.reference.tensors.variable import Variable

__all__ = ["FloatPolicy", "KerasAdam", "KerasOptimizer"]


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


class KerasAdam(FloatPolicy):
    """``keras.optimizers.Adam``."""

    spec, rule = OPTIMIZERS["Adam"], keras_adam
