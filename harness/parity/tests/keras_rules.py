"""Keras 3's other optimizers over NumPy variables, as its Adam is in the drivers."""

from __future__ import annotations

from harness.parity.drivers.framework_rules import keras_adam
from harness.parity.drivers.framework_rules.keras_optimizers import (
    FloatPolicy,
    KerasAdam,
    KerasOptimizer,
)
from harness.parity.tests import keras_sgd
from lockstep.optimizers import OPTIMIZERS
from lockstep.reference.optimizers.rules import adagrad, ftrl, rmsprop

__all__ = [
    "KerasAdagrad",
    "KerasAdam",
    "KerasAdamW",
    "KerasFtrl",
    "KerasRMSprop",
    "KerasSGD",
]


class KerasSGD(FloatPolicy):
    """``keras.optimizers.SGD`` with momentum."""

    spec, rule = OPTIMIZERS["Momentum"], keras_sgd


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
