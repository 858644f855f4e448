"""Correct steps run under tf.debugging.enable_check_numerics: nothing is infinite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import pytest
import tensorflow as tf

from lockstep.keras3 import (
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    NovoGrad,
    VariableClippingOptimizer,
)

MODES = {"eager": lambda step: step, "function": tf.function}
STEPS: dict[str, Callable[[], Any]] = {
    "rows": lambda: VariableClippingOptimizer(
        keras.optimizers.SGD(0.5), {"w": [1]}, 2.5
    ),
    "NovoGrad": lambda: NovoGrad(0.5),
    "scale": lambda: MixedPrecisionLossScaleOptimizer(
        keras.optimizers.SGD(0.5), DynamicLossScale(8.0, 1), clip_norm=2.0
    ),
    "masters": lambda: MixedPrecisionOptimizerWrapper(
        keras.optimizers.SGD(0.5), DynamicLossScale(8.0, 1)
    ),
}


@pytest.fixture
def checked() -> Iterator[None]:
    tf.debugging.enable_check_numerics()
    try:
        yield
    finally:
        tf.debugging.disable_check_numerics()


@pytest.mark.sample(8)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("gradient", [0.0, 1.0])
def test_steps_compute_no_infinity(
    checked: None, gradient: float, name: str, mode: str
) -> None:
    dtype = "bfloat16" if name == "masters" else "float32"
    w = keras.Variable([[3.0, 4.0], [0.0, 0.0]], dtype=dtype, name="w")
    optimizer = STEPS[name]()
    optimizer.build([w])
    step = MODES[mode](lambda: optimizer.apply([tf.fill([2, 2], one)], [w]))
    one = tf.constant(gradient, dtype)
    for _ in range(2):
        step()
    assert tf.reduce_all(tf.math.is_finite(w.value))
    assert int(optimizer.iterations) == 2
