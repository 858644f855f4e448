"""Adam and AdamW."""

from __future__ import annotations

from typing import Any, ClassVar

import keras

from lockstep.keras3.optimizers.widened import WidenedRule
from lockstep.messages.optimizers.parameters import OPTIMIZERS
from lockstep.quirks import quirks_of

__all__ = ["AdamOptimizer", "AdamWOptimizer"]

registered = keras.saving.register_keras_serializable(package="lockstep")


@registered
class AdamOptimizer(WidenedRule, keras.optimizers.Adam):
    """m += (1-b1)(g-m); v += (1-b2)(g^2-v); w -= lr c m / (sqrt(v) + eps).

    c = sqrt(1 - b2^t) / (1 - b1^t), t = ``iterations`` + 1. The rule of
    ``keras.optimizers.Adam``, which is TensorFlow 1's with other roundings: 1-b1 and
    1-b2 are taken in float64, the powers from t instead of step by step. A sparse
    gradient moves every row, as in TensorFlow 1. There are no powers in variables, so
    ``use_own_namescope_for_non_slot_vars`` has no effect. Half precision is computed
    in float32, but under ``strict``.
    """

    spec = OPTIMIZERS["Adam"]
    renamed: ClassVar = {"beta1": "beta_1", "beta2": "beta_2", "epsilon": "epsilon"}
    fixed: ClassVar = {"amsgrad": False}

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
        use_own_namescope_for_non_slot_vars: bool = False,
        strict: bool = False,
        **options: Any,
    ) -> None:
        given = {"learning_rate": learning_rate, "beta1": beta1, "beta2": beta2}
        super().__init__({**given, "epsilon": epsilon}, name, options)
        self.strict = strict

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "strict": self.strict}


@registered
class AdamWOptimizer(WidenedRule, keras.optimizers.AdamW):
    """w -= lr weight_decay w, then Adam.

    The rule of ``keras.optimizers.AdamW``. TensorFlow 1's decay is not multiplied by
    the rate: for its strength give ``weight_decay / learning_rate``, at a constant
    rate. Half precision is as in :class:`AdamOptimizer`, but under ``strict``, which
    does not check the ranges of the arguments either, as the original.
    """

    spec = OPTIMIZERS["AdamW"]
    renamed: ClassVar = {
        "weight_decay": "weight_decay",
        "beta1": "beta_1",
        "beta2": "beta_2",
        "epsilon": "epsilon",
    }
    fixed: ClassVar = {"amsgrad": False}

    def __init__(
        self,
        weight_decay: float,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
        strict: bool = False,
        **options: Any,
    ) -> None:
        given = {"learning_rate": learning_rate, "weight_decay": weight_decay}
        given |= {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        checks = not quirks_of(strict).arguments_unchecked
        super().__init__(given, name, options, checks)
        self.strict = strict

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "strict": self.strict}
