"""Half-precision variables and models, and what trains them through masters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.keras3 import MixedPrecisionOptimizerWrapper

__all__ = [
    "MODES",
    "NAN",
    "TINY",
    "X",
    "Y",
    "bits",
    "each_half",
    "each_mode",
    "fit",
    "half",
    "masters_of",
    "model_with",
    "momentum",
    "rounded",
]

X = np.random.RandomState(0).randn(12, 3).astype(np.float16)
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


def masters_of(inner: Any = None, *arguments: Any, **options: Any) -> Any:
    inner = momentum() if inner is None else inner
    return MixedPrecisionOptimizerWrapper(inner, *arguments, **options)


def model_with(optimizer: Any, dtype: str = "float16", **options: Any) -> keras.Model:
    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Dense(2, dtype=dtype, name="first"),
        keras.layers.Dense(1, dtype=dtype, name="second"),
    ]
    model = keras.Sequential([keras.layers.Input([3], dtype="float16"), *layers])
    model.compile(optimizer, "mse", **options)
    return model


def fit(model: keras.Model, x: Any = X, **options: Any) -> None:
    model.fit(x, Y, batch_size=4, shuffle=False, verbose=0, **options)


def bits(variables: Sequence[Any]) -> list[bytes]:
    return [np.asarray(variable.numpy()).tobytes() for variable in variables]


def rounded(master: Any, dtype: str) -> bytes:
    return tf.cast(master.value, dtype).numpy().tobytes()
