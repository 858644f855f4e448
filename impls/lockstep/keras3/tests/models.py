"""What several tests share: modes, models, batches that overflow, masters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.keras3 import (
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
)

X = np.random.RandomState(0).randn(12, 3).astype(np.float16).astype(np.float32)
BAD = X.copy()
BAD[5] = np.inf
Y = X[:, :1].copy()
NAN, TINY = float("nan"), 2.0**-13
"""A float16 near 1 moves by 2^-11 downward: a step of TINY is lost in it."""

MODES: dict[str, Callable[[Any], Any]] = {
    "eager": lambda function: function,
    "function": lambda function: tf.function(function, autograph=False),
    "jit": lambda function: tf.function(function, autograph=False, jit_compile=True),
}
each_mode = pytest.mark.parametrize("mode", MODES)
each_half = pytest.mark.parametrize("dtype", ["float16", "bfloat16"])


def half(values: Any, dtype: str = "float16", name: str = "w") -> keras.Variable:
    return keras.Variable(values, dtype=dtype, name=name)


def momentum(rate: float = 0.125) -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(rate, momentum=0.5)


def scaled(scale: Any = "dynamic", **options: Any) -> MixedPrecisionLossScaleOptimizer:
    return MixedPrecisionLossScaleOptimizer(momentum(), scale, **options)


def masters_of(inner: Any = None, *arguments: Any, **options: Any) -> Any:
    inner = momentum() if inner is None else inner
    return MixedPrecisionOptimizerWrapper(inner, *arguments, **options)


def model_with(
    optimizer: Any,
    dtype: str | None = None,
    units: Sequence[int] = (1,),
    **options: Any,
) -> keras.Model:
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(count, dtype=dtype) for count in units]
    model = keras.Sequential([keras.layers.Input([3]), *layers])
    model.compile(optimizer, "mse", **options)
    return model


def half_model(optimizer: Any, dtype: str = "float16", **options: Any) -> keras.Model:
    return model_with(optimizer, dtype, (2, 1), **options)


def fit(model: keras.Model, x: Any = X, **options: Any) -> None:
    model.fit(x, Y, batch_size=4, shuffle=False, verbose=0, **options)


def bits(variables: Sequence[Any]) -> list[bytes]:
    return [np.asarray(variable.numpy()).tobytes() for variable in variables]


def rounded(master: Any, dtype: str) -> bytes:
    return tf.cast(master.value, dtype).numpy().tobytes()


def stepper(
    optimizer: Any, variables: Sequence[Any], mode: str
) -> Callable[[Sequence[Any]], Any]:
    """Return a compiled step that applies these gradients to the variables."""
    optimizer.build(list(variables))
    step = MODES[mode](lambda *gradients: optimizer.apply(list(gradients), variables))
    return lambda gradients: step(*map(tf.constant, gradients))
