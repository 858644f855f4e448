"""NovoGrad as an optimizer of Keras; its numbers are checked by parity."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.keras3 import NovoGrad

pytestmark = pytest.mark.filterwarnings(
    # Keras hands its variables to NumPy in a way that NumPy 2 warns of.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)
SLOTS = ("momentum", "second_moment")
INPUTS = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)
TARGETS = INPUTS.sum(1, keepdims=True)


def model(dtype: str | None = None) -> keras.Model:
    keras.utils.set_random_seed(0)
    layers = [keras.Input((3,)), keras.layers.Dense(2, dtype=dtype)]
    return keras.Sequential([*layers, keras.layers.Dense(1, dtype=dtype)])


def fitted(optimizer: Any, epochs: int = 3, **options: Any) -> keras.Model:
    trained = model()
    trained.compile(optimizer, "mse", **options)
    trained.fit(INPUTS, TARGETS, epochs=epochs, batch_size=4, shuffle=False, verbose=0)
    return trained


def moments(optimizer: Any, variable: Any) -> list[np.ndarray]:
    return [optimizer.get_slot(variable, name).numpy() for name in SLOTS]


def values(variables: Any) -> list[Any]:
    return [variable.numpy().tolist() for variable in variables]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "way", ["eager", "graph", pytest.param("jit", marks=pytest.mark.soak)]
)
def test_fit_lowers_the_loss_in_every_way(way: str) -> None:
    options = {"run_eagerly": way == "eager", "jit_compile": way == "jit"}
    optimizer = NovoGrad(0.01, weight_decay=0.001)
    trained = fitted(optimizer, epochs=30, **options)
    assert trained.evaluate(INPUTS, TARGETS, verbose=0) < model_loss() / 2
    assert all(moments(optimizer, w)[1] > 0 for w in trained.trainable_variables)


def model_loss() -> float:
    untrained = model()
    untrained.compile("sgd", "mse")
    return untrained.evaluate(INPUTS, TARGETS, verbose=0)


def test_what_is_excluded_does_not_decay() -> None:
    kernel, bias = keras.Variable([2.0], name="k"), keras.Variable([2.0], name="b")
    optimizer = NovoGrad(0.25, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["b"])
    optimizer.apply([tf.ones([1]), tf.ones([1])], [kernel, bias])
    assert values([kernel, bias]) == [[1.5], [1.75]]


def test_half_precision_has_a_second_moment_in_float32() -> None:
    w, optimizer = keras.Variable([1.0, 1.0], dtype="float16"), NovoGrad()
    optimizer.apply([tf.constant([300.0, 400.0], tf.float16)], [w])
    momentum, second = moments(optimizer, w)
    assert (momentum.dtype, second.dtype) == (np.float16, np.float32)
    assert second == 250000
