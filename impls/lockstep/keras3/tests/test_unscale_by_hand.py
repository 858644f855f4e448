"""Loops with a tape: a loss is scaled, its gradients are unscaled by hand."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import keras3 as ls
from lockstep.errors import UnscaledTwiceError


def sgd() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.5)


MAKE = {
    "scale": lambda: ls.MixedPrecisionLossScaleOptimizer(sgd(), 8.0),
    "masters": lambda: ls.MixedPrecisionOptimizerWrapper(sgd(), 8.0),
    "stack": lambda: ls.MultitaskOptimizerWrapper(
        ls.MixedPrecisionLossScaleOptimizer(ls.MultitaskOptimizerWrapper(sgd()), 8.0)
    ),
}
absent_is_fine = pytest.mark.filterwarnings("ignore:Gradients do not exist")
each_wrapper = pytest.mark.parametrize("name", MAKE)


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@each_wrapper
@absent_is_fine
def test_gradients_can_be_clipped_between(name: str, dtype: str, mode: str) -> None:
    optimizer = MAKE[name]()
    w = keras.Variable([3.0, 4.0], dtype=dtype, name="w")
    table = keras.Variable([[1.0], [1.0]], name="table")
    idle = keras.Variable([1.0], name="idle")
    weights = [w, table, idle]
    optimizer.build(weights)
    found: list[Any] = []

    def step() -> Any:
        values = [variable.value for variable in weights]
        with tf.GradientTape() as tape:
            loss = tf.cast(tf.reduce_sum(w.value * w.value), tf.float32) / 2
            loss += tf.reduce_sum(tf.gather(table.value, [0]))
            loss = optimizer.scale_loss(loss)
        gradients = optimizer.unscale_gradients(tape.gradient(loss, values))
        found[:] = gradients
        clipped = [tf.clip_by_norm(gradients[0], 2.5), *gradients[1:]]
        optimizer.apply_gradients(zip(clipped, weights, strict=True))
        return loss, gradients[0]

    loss, unscaled = (tf.function(step) if mode == "function" else step)()
    assert float(loss) == 8 * (12.5 + 1.0)
    # Half precision could not hold every unscaled gradient.
    assert (unscaled.dtype, unscaled.numpy().tolist()) == (tf.float32, [3.0, 4.0])
    assert isinstance(found[1], tf.IndexedSlices) and found[2] is None
    # clipped to [1.5, 2], at a rate of 0.5; divided once
    assert w.numpy().tolist() == [2.25, 3.0]
    assert table.numpy().tolist() == [[0.5], [1.0]] and idle.numpy().tolist() == [1.0]


@each_wrapper
def test_a_tiny_gradient_survives_beside_half_precision(name: str) -> None:
    optimizer = MAKE[name]()
    w = keras.Variable([1.0], dtype="float16", name="w")
    optimizer.build([w])
    optimizer.scale_loss(tf.constant(1.0))
    (unscaled,) = optimizer.unscale_gradients([tf.constant([2**-24], tf.float16)])
    assert float(unscaled[0]) == 2.0**-27  # float16 rounds it to 0


@each_wrapper
def test_a_second_unscaling_before_the_step_is_refused(name: str) -> None:
    optimizer, w = MAKE[name](), keras.Variable([1.0, 1.0], name="w")
    optimizer.build([w])
    gradient = tf.constant([8.0, 8.0])
    for _ in range(2):
        optimizer.scale_loss(tf.constant(1.0))
        (unscaled,) = optimizer.unscale_gradients([gradient])
        with pytest.raises(UnscaledTwiceError, match="expected one unscaling"):
            optimizer.unscale_gradients([unscaled])
        optimizer.apply_gradients([(unscaled, w)])
    assert w.numpy().tolist() == [0.0, 0.0]

    @tf.function(autograph=False)
    def step(gradient: Any) -> None:
        optimizer.unscale_gradients(optimizer.unscale_gradients([gradient]))

    with pytest.raises(UnscaledTwiceError):
        step(gradient)


def test_where_nothing_scales_gradients_stay_as_they_are() -> None:
    optimizer = ls.MultitaskOptimizerWrapper(sgd())
    gradient = tf.constant([1.0])
    assert optimizer.unscale_gradients([gradient, None]) == [gradient, None]


@pytest.fixture
def mixed_float16() -> Any:
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy("mixed_float16")
    yield
    keras.mixed_precision.set_global_policy(before)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["scale", "masters"])
def test_fit_asks_a_wrapper_inside_to_scale_the_loss(
    mixed_float16: None, name: str
) -> None:
    layers = [keras.Input([2]), keras.layers.Dense(1, dtype="float32")]
    model = keras.Sequential([layers[0], keras.layers.Dense(2), layers[1]])
    inner = MAKE[name]()
    outer = ls.MultitaskOptimizerWrapper(inner)
    model.compile(outer, "mse", auto_scale_loss=False)
    seen: list[float] = []
    vars(inner)["scale_loss"] = lambda loss: seen.append(1.0) or loss
    model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0)
    assert seen


@each_wrapper
def test_loss_and_step_may_stand_in_two_functions(name: str) -> None:
    optimizer, w = MAKE[name](), keras.Variable([16.0], name="w")
    optimizer.build([w])

    @tf.function
    def compute() -> Any:
        with tf.GradientTape() as tape:
            loss = optimizer.scale_loss(tf.reduce_sum(w.value * w.value) / 2)
        return tape.gradient(loss, [w.value])

    @tf.function
    def update(gradients: Any) -> None:
        optimizer.apply_gradients(zip(gradients, [w], strict=True))

    for _ in range(4):
        update(optimizer.unscale_gradients(compute()))
    assert w.numpy().tolist() == [1.0]
