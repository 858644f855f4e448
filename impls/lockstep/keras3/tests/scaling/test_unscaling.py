"""Who unscales: tapes, compute_gradients, clipping, other wrappers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.keras3 import (
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.keras3.tests.scaling.models import (
    MODES,
    bits,
    each_mode,
    momentum,
    scaled,
    stepper,
)

pytestmark = pytest.mark.filterwarnings(
    # Keras hands its variables to NumPy in a way that NumPy 2 warns of.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)


# Who unscales


def loss_of(w: keras.Variable) -> tf.Tensor:
    return tf.reduce_sum(w.value * [1.0, 2.0])


EXPECTED = [0.875, 0.75]
"""(1, 1) - 0.125 (1, 2): one step of the optimizer, however the gradients are made."""


@each_mode
def test_gradients_of_a_scaled_loss_are_divided_once(mode: str) -> None:
    w = keras.Variable([1.0, 1.0])
    optimizer = MixedPrecisionLossScaleOptimizer(keras.optimizers.SGD(0.125), 8.0)
    optimizer.build([w])

    def differentiate(scales: bool) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(w)
            loss = optimizer.scale_loss(loss) if scales else loss
        return tape.gradient(loss, w.value)

    compiled = MODES[mode](differentiate)
    apply = MODES[mode](lambda gradient: optimizer.apply([gradient], [w]))
    # Apart: what is still to be divided by is known between graphs.
    for scales in (True, True, False, True):
        w.assign([1.0, 1.0])
        apply(compiled(scales))
        assert w.numpy().tolist() == EXPECTED


@pytest.mark.sample(4)
@each_mode
@pytest.mark.parametrize("around", ["nothing", "multitask", "rows"])
@pytest.mark.parametrize("scales", [False, True], ids=["plainly", "by itself"])
def test_compute_gradients_unscales(mode: str, around: str, scales: bool) -> None:
    w = keras.Variable([1.0, 1.0])
    sgd = keras.optimizers.SGD(0.125)
    optimizer: Any = MixedPrecisionLossScaleOptimizer(sgd, 8.0)
    inside = optimizer
    if around == "multitask":
        optimizer = MultitaskOptimizerWrapper(inside)
    elif around == "rows":
        optimizer = VariableClippingOptimizer(inside, {w.path: [0]}, 100.0)
    optimizer.build([w])

    def step() -> tf.Tensor:
        def loss() -> tf.Tensor:
            return inside.scale_loss(loss_of(w)) if scales else loss_of(w)

        pairs = optimizer.compute_gradients(loss, [w])
        optimizer.apply_gradients(pairs)
        return pairs[0][0]

    compiled = MODES[mode](step)
    for _ in range(2):
        w.assign([1.0, 1.0])
        assert compiled().numpy().tolist() == [1.0, 2.0]
        assert w.numpy().tolist() == EXPECTED


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_precision_gets_unscaled_gradients(dtype: str) -> None:
    w = keras.Variable([1.0, 2.0], dtype=dtype)
    optimizer = MixedPrecisionLossScaleOptimizer(keras.optimizers.SGD(0.5), 2.0**10)
    given = tf.constant([0.5, -1.0], dtype)
    pairs = optimizer.compute_gradients(lambda: tf.reduce_sum(w.value * given), [w])
    assert pairs[0][0].dtype.name == dtype
    optimizer.apply_gradients(pairs)
    assert np.asarray(w.numpy(), np.float64).tolist() == [0.75, 2.5]


# Clipping


@pytest.mark.sample(1)
@each_mode
def test_clipping_does_not_see_the_scale(mode: str) -> None:
    def clipped_run(scale: float) -> list[bytes]:
        draw = np.random.default_rng(1)
        w = keras.Variable(np.ones((3, 2), np.float32))
        optimizer = scaled(scale, clip_norm=0.7)
        optimizer.build([w])

        def step(gradient: tf.Tensor) -> None:
            optimizer.minimize(lambda: tf.reduce_sum(w.value * gradient), var_list=[w])

        compiled = MODES[mode](step)
        for _ in range(3):
            compiled(tf.constant(draw.normal(size=(3, 2)), tf.float32))
        return bits([w])

    assert clipped_run(1.0) == clipped_run(2.0**16)


@pytest.mark.sample(3)
@each_mode
@pytest.mark.parametrize(
    "wrap", [MixedPrecisionLossScaleOptimizer, MixedPrecisionOptimizerWrapper]
)
def test_values_that_overwrite_variables_are_not_clipped(wrap: Any, mode: str) -> None:
    # Such as the scales of a layer that is quantized to float8.
    scale, w = keras.Variable([1.0]), keras.Variable([1.0])
    scale.overwrite_with_gradient = True
    optimizer = wrap(keras.optimizers.SGD(0.5), 8.0, clip_norm=1.0)
    stepper(optimizer, [scale, w], mode)([[40.0], [4.0]])
    assert (scale.numpy().tolist(), w.numpy().tolist()) == ([40.0], [0.5])
    assert mode != "eager" or optimizer.last_step.norm == 4.0


def test_a_norm_that_overflows_is_an_overflow_and_reported() -> None:
    w = keras.Variable([0.0, 0.0], name="w")
    optimizer = scaled("dynamic", clip_norm=2.5)
    optimizer.apply([tf.constant([3.0, 4.0])], [w])
    assert w.numpy().tolist() == [-0.1875, -0.25]
    assert (optimizer.last_step.norm, optimizer.last_step.clip_factor) == (5, 0.5)
    optimizer.apply([tf.constant([1e30, 4.0])], [w])
    assert optimizer.last_step.norm == np.inf and not optimizer.last_step.applied
    assert float(optimizer.loss_scale) == 2.0**14


# Nests


def test_duplicate_rows_that_overflow_when_summed_are_an_overflow() -> None:
    table = keras.Variable(np.ones((4, 1), np.float32))
    optimizer = scaled()
    values, rows = tf.constant([[3e38], [3e38]]), tf.constant([1, 1])
    optimizer.apply([tf.IndexedSlices(values, rows, tf.constant([4, 1]))], [table])
    assert not optimizer.last_step.applied
    assert table.numpy().ravel().tolist() == [1, 1, 1, 1]


@pytest.mark.sample(2)
@each_mode
@pytest.mark.parametrize("gradient", [[0.0, 0.0], None], ids=["zero", "absent"])
def test_a_step_left_out_by_a_multitask_wrapper_uses_up_its_divisor(
    mode: str, gradient: Any
) -> None:
    w, other = keras.Variable([1.0, 1.0]), keras.Variable([1.0])
    sgd = keras.optimizers.SGD(0.125)
    inside = MixedPrecisionLossScaleOptimizer(sgd, 1024.0)
    optimizer = MultitaskOptimizerWrapper(inside)
    optimizer.build([w, other])
    scale = MODES[mode](lambda: inside.scale_loss(tf.ones([])))
    zero = None if gradient is None else tf.constant(gradient)
    leave_out = MODES[mode](lambda: optimizer.apply([zero, tf.zeros([1])], [w, other]))
    step = stepper(optimizer, [w, other], mode)
    assert float(scale()) == 1024
    leave_out()
    assert [*w.numpy(), *other.numpy()] == [1, 1, 1]
    # Gradients of a loss that nothing has scaled.
    step([[1.0, 2.0], [8.0]])
    assert [*w.numpy(), *other.numpy()] == [*EXPECTED, 0.0]


class Trained(tf.Module):
    """A weight and its training step, as a program may export them."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__()
        self.weight = keras.Variable([1.0, 1.0], name="w")
        self.optimizer = optimizer
        optimizer.build([self.weight])

    @tf.function(input_signature=[])
    def step(self) -> tf.Tensor:
        value = self.weight.value
        with tf.GradientTape() as tape:
            loss = self.optimizer.scale_loss(loss_of(self.weight))
        gradients = tape.gradient(loss, [value])
        self.optimizer.apply(gradients, [self.weight])
        return tf.identity(value)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "wrapper", [MixedPrecisionLossScaleOptimizer, MixedPrecisionOptimizerWrapper]
)
def test_an_exported_training_step_goes_on(wrapper: Any, tmp_path: Path) -> None:
    trained = Trained(wrapper(momentum(), "dynamic"))
    trained.step()
    tf.saved_model.save(trained, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for _ in range(2):
        assert bits(loaded.step()) == bits(trained.step())
    # Like TensorFlow's, checkpoints have nothing that a step leaves behind.
    checkpoint = tf.train.Checkpoint(optimizer=trained.optimizer)
    path = checkpoint.write(str(tmp_path / "checkpoint"))
    names = [name for name, _ in tf.train.list_variables(path)]
    assert not any("divisor" in name for name in names)
