"""What the tests of loss scaling share: modes, a model, batches that overflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.keras3 import MixedPrecisionLossScaleOptimizer

X = np.random.RandomState(0).randn(12, 3).astype(np.float32)
BAD = X.copy()
BAD[5] = np.inf
Y = X[:, :1].copy()
NAN = float("nan")

MODES: dict[str, Callable[[Any], Any]] = {
    "eager": lambda function: function,
    "function": lambda function: tf.function(function, autograph=False),
    "jit": lambda function: tf.function(function, autograph=False, jit_compile=True),
}
each_mode = pytest.mark.parametrize("mode", MODES)


def momentum() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.125, momentum=0.5)


def scaled(scale: Any = "dynamic", **options: Any) -> MixedPrecisionLossScaleOptimizer:
    return MixedPrecisionLossScaleOptimizer(momentum(), scale, **options)


def model_with(optimizer: Any, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **options)
    return model


def fit(model: keras.Model, x: Any = X, **options: Any) -> None:
    model.fit(x, Y, batch_size=4, shuffle=False, verbose=0, **options)


def bits(variables: Sequence[Any]) -> list[bytes]:
    return [np.asarray(variable.numpy()).tobytes() for variable in variables]


def stepper(
    optimizer: Any, variables: Sequence[Any], mode: str
) -> Callable[[Sequence[Any]], Any]:
    """Return a compiled step that applies these gradients to the variables."""
    optimizer.build(list(variables))
    step = MODES[mode](lambda *gradients: optimizer.apply(list(gradients), variables))
    return lambda gradients: step(*map(tf.constant, gradients))
