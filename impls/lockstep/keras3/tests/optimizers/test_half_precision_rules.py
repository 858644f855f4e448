"""Rules beside variables in half precision, whose scalars it cannot hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import keras3 as ls

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


def test_a_step_in_a_graph_is_the_same() -> None:
    optimizer, twin = MAKE["adam"](), MAKE["adam"]()
    weights = [keras.Variable(START, dtype="bfloat16", name="w") for _ in range(2)]
    optimizer.build(weights[:1])
    twin.build(weights[1:])
    gradient = tf.cast(START, tf.bfloat16)
    for _ in range(3):
        tf.function(lambda: optimizer.apply([gradient], weights[:1]))()
        twin.apply([gradient], weights[1:])
    assert weights[0].numpy().tobytes() == weights[1].numpy().tobytes()
