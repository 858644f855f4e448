"""Adam and AdamW."""

from __future__ import annotations

from typing import Any, ClassVar

import keras

from lockstep.docstrings import documented
from lockstep.keras3.optimizers.widened import WidenedRule
from lockstep.optimizers import OPTIMIZERS
from lockstep.quirks import quirks_of

__all__ = ["AdamOptimizer", "AdamWOptimizer"]

registered = keras.saving.register_keras_serializable(package="lockstep")


@documented
@registered
class AdamOptimizer(WidenedRule, keras.optimizers.Adam):
    """``keras.optimizers.Adam`` in the "epsilon hat" form of TensorFlow 1.

    ...

    t = ``iterations`` + 1. Rounding differs from TensorFlow 1: 1 - b1 and 1 - b2 are
    computed in float64, and the powers from t instead of step by step. A sparse
    gradient updates every row. Half precision is computed in float32, except under
    ``strict``.

    Args:
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        use_own_namescope_for_non_slot_vars: no effect, because the powers are not
            variables.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).
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
        arguments = {"learning_rate": learning_rate, "beta1": beta1, "beta2": beta2}
        super().__init__({**arguments, "epsilon": epsilon}, name, options)
        self.strict = strict

    def get_config(self) -> dict[str, Any]:
        """Return the arguments for ``from_config``."""
        return {**super().get_config(), "strict": self.strict}


@documented
@registered
class AdamWOptimizer(WidenedRule, keras.optimizers.AdamW):
    """``keras.optimizers.AdamW``, whose decay is multiplied by the rate.

    w -= lr weight_decay w, then as in :class:`AdamOptimizer`. TensorFlow 1's decay is
    not multiplied by the rate. To get its strength at a constant rate, pass
    ``weight_decay / learning_rate``. Half precision is computed in float32, except
    under ``strict``.

    Args:
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        weight_decay: the fraction of a weight that an update at rate 1 subtracts, >= 0.
        strict: as in the original, compute in the variable's dtype, even in half
            precision, and do not check the ranges of the arguments.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).
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
        arguments = {"learning_rate": learning_rate, "weight_decay": weight_decay}
        arguments |= {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        checks = not quirks_of(strict).arguments_unchecked
        super().__init__(arguments, name, options, checks)
        self.strict = strict

    def get_config(self) -> dict[str, Any]:
        """Return the arguments for ``from_config``."""
        return {**super().get_config(), "strict": self.strict}
