"""The optimizers by name: their arguments, and the files that have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import keras3
from lockstep import keras3 as ls
from lockstep.optimizers import RULES

ARGUMENTS: dict[str, dict[str, Any]] = {
    "GradientDescent": {"learning_rate": 0.5},
    "Momentum": {"learning_rate": 0.5, "momentum": 0.5},
    "Adam": {},
    "AdamW": {"weight_decay": 0.25},
    "Adagrad": {"learning_rate": 0.5},
    "RMSProp": {"learning_rate": 0.5},
    "Ftrl": {"learning_rate": 0.5},
    "NovoGrad": {"weight_decay": 0.25, "grad_averaging": True},
}


@pytest.mark.parametrize("names", [keras3])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_configuration_makes_the_same_optimizer(name: str, names: Any) -> None:
    made = getattr(names, RULES[name].class_name)(**ARGUMENTS[name], clipnorm=1.0)
    config = keras.saving.serialize_keras_object(made)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(made) and again.get_config() == made.get_config()


def test_ftrl_takes_the_beta_of_tensorflow_2() -> None:
    w, expected = keras.Variable([1.0, -2.0]), tf.Variable([1.0, -2.0])
    made = keras3.FtrlOptimizer(0.5, beta=0.25)
    original = tf.compat.v1.train.FtrlOptimizer(0.5, beta=0.25)
    for _ in range(2):
        made.apply([tf.constant([0.5, 2.0])], [w])
        original.apply_gradients([(tf.constant([0.5, 2.0]), expected)])
    # Two orders of the same float32 operations.
    assert w.numpy() == pytest.approx(expected.numpy(), rel=1e-6)
    without = keras.Variable([1.0, -2.0])
    keras3.FtrlOptimizer(0.5).apply([tf.constant([0.5, 2.0])], [without])
    assert without.numpy().tolist() != w.numpy().tolist()


MAKE: dict[str, Callable[[], Any]] = {
    "adam": lambda: ls.AdamOptimizer(1e-2),
    "adamw": lambda: ls.AdamWOptimizer(0.01, 1e-2),
    "rmsprop": lambda: ls.RMSPropOptimizer(1e-2),
    "rmsprop centered": lambda: ls.RMSPropOptimizer(1e-2, momentum=0.5, centered=True),
    "novograd": lambda: ls.NovoGrad(1e-2),
}
START = np.array([[0.3, -0.2], [0.4, 1.0], [1.0, 1.0]], np.float32)
FACTOR = np.array([[1.0], [1e-4], [0.0]], np.float32)
"""The last row has no gradient, and the one before it one that epsilon matters for."""
STEPS = 20
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def trained(make: Callable[[], Any], dtype: str, sparse: bool) -> tuple[Any, Any]:
    weight, optimizer = keras.Variable(START, dtype=dtype, name="w"), make()
    factor = tf.cast(FACTOR, dtype)
    for _ in range(STEPS):
        gradient = 2 * weight.value * factor
        if sparse:
            gradient = tf.IndexedSlices(gradient[:2], tf.constant([0, 1]), [3, 2])
        optimizer.apply([gradient], [weight])
    return tf.cast(weight.value, tf.float32).numpy(), optimizer


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("dtype", "sparse"),
    [
        pytest.param(dtype, sparse, marks=[pytest.mark.soak] * (row != sparse))
        for row, dtype in enumerate(ROUNDING)
        for sparse in (False, True)
    ],
)
@pytest.mark.parametrize("name", MAKE)
def test_half_precision_trains_as_float32_does(
    name: str, dtype: str, sparse: bool
) -> None:
    found, _ = trained(MAKE[name], dtype, sparse)
    wanted, _ = trained(MAKE[name], "float32", sparse)
    # Each step rounds the weight and its gradient once.
    np.testing.assert_allclose(found, wanted, rtol=0, atol=STEPS * ROUNDING[dtype])
    assert not np.array_equal(found[0], START[0])


@pytest.mark.parametrize("name", ["adam", "adamw", "rmsprop centered"])
def test_slots_beside_half_precision_are_in_float32(name: str) -> None:
    _, optimizer = trained(MAKE[name], "bfloat16", False)
    slots = [slot for slot in optimizer.variables if "/w_" in slot.path]
    assert len(slots) >= 2 and {slot.dtype for slot in slots} == {"float32"}


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("name", MAKE)
def test_gradients_are_accumulated_in_half_precision(name: str, dtype: str) -> None:
    weights = [keras.Variable(START, dtype=dtype, name="w") for _ in range(2)]
    accumulating, plain = MAKE[name](), MAKE[name]()
    accumulating.gradient_accumulation_steps = 2
    gradient = tf.cast(START, dtype)
    for _ in range(2):
        accumulating.apply([gradient], weights[:1])
    # Keras counts micro-steps, so the plain optimizer begins at its second step.
    plain.build(weights[1:])
    plain.apply([gradient], weights[1:])
    assert weights[0].numpy().tobytes() == weights[1].numpy().tobytes()


NAN = float("nan")


def rows_of(indices: list[int], values: Any, count: int) -> tf.IndexedSlices:
    shape = tf.constant([count, 2], tf.int64)
    return tf.IndexedSlices(tf.constant(values, tf.float32), indices, shape)


def apply(optimizer: Any, mode: str, gradients: Any, variables: Any) -> None:
    optimizer.build(variables)
    if mode == "eager":
        optimizer.apply(gradients, variables)
    else:
        tf.function(lambda: optimizer.apply(gradients, variables))()


@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("name", ["Ftrl", "RMSProp"])
def test_a_variable_without_rows_is_left_alone(name: str, mode: str) -> None:
    """Keras' sum takes it for a bias, which its kernel refuses."""
    empty = keras.Variable(np.zeros((0, 3), np.float32))
    w = keras.Variable([1.0, 2.0])
    made = getattr(keras3, f"{name}Optimizer")(0.5)
    apply(made, mode, [tf.zeros((0, 3)), tf.constant([0.5, 0.5])], [empty, w])
    assert empty.shape == (0, 3)
    assert not np.isin(w.numpy(), [1.0, 2.0]).any()


MADE: dict[str, Callable[[], Any]] = {
    "adagrad": lambda: keras3.AdagradOptimizer(0.5),
    "rmsprop": lambda: keras3.RMSPropOptimizer(0.5),
    "rmsprop with momentum": lambda: keras3.RMSPropOptimizer(0.5, momentum=0.5),
}


@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("name", MADE)
def test_a_row_that_is_named_twice_may_be_nan(name: str, mode: str) -> None:
    """Keras' division looks for the rows where the divisor is NaN, each once."""
    start = np.float32([[1, 2], [3, 4], [5, 6]])
    twice = rows_of([2, 0, 2], [[1, NAN], [0.5, 0.25], [1, 1]], 3)
    once = rows_of([0, 2], [[0.5, 0.25], [2, NAN]], 3)
    found = []
    for gradient in (twice, once):
        w = keras.Variable(start)
        apply(MADE[name](), mode, [gradient], [w])
        found.append(w.numpy())
    np.testing.assert_array_equal(*found)
    assert np.argwhere(np.isnan(found[0])).tolist() == [[2, 1]]
