"""Loss scaling as a citizen of Keras: skipped steps, fit, stalls, files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import errors
from lockstep.interface import NO_EAGER_STEP
from lockstep.keras3 import (
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    optimize_loss,
)
from lockstep.keras3.tests.models import (
    BAD,
    MODES,
    NAN,
    X,
    Y,
    bits,
    each_mode,
    fit,
    model_with,
    momentum,
    scaled,
    stepper,
)

pytestmark = pytest.mark.filterwarnings(
    # Keras hands its variables to NumPy in a way that NumPy 2 warns of.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)


@pytest.mark.sample(1)
@each_mode
def test_200_overflowing_steps_change_no_bit(mode: str) -> None:
    w = keras.Variable([1.0, 2.0], name="w")
    inner = keras.optimizers.AdamW(0.1, use_ema=True)
    optimizer = MixedPrecisionLossScaleOptimizer(inner, "dynamic", at_floor="ignore")
    step = stepper(optimizer, [w], mode)
    step([[1.0, 2.0]])
    before = bits([w, *inner.variables])
    for _ in range(200):
        step([[NAN, 1.0]])
    assert bits([w, *inner.variables]) == before
    assert float(optimizer.loss_scale) == 1
    assert int(optimizer.skipped_in_a_row) == 200
    step([[1.0, 2.0]])
    assert bits([w]) != before[:1] and int(optimizer.skipped_in_a_row) == 0


def test_a_step_that_fails_leaves_the_scale_alone() -> None:
    class Failing(keras.optimizers.SGD):
        def update_step(self, *arguments: Any) -> None:
            raise OSError("no such device")

    scale = DynamicLossScale(2.0, increment_period=1)
    optimizer = MixedPrecisionLossScaleOptimizer(Failing(0.1), scale)
    with pytest.raises(OSError, match="no such device"):
        optimizer.apply([tf.ones([1])], [keras.Variable([1.0])])
    assert float(scale()) == 2 and int(scale.good_steps) == 0


def test_a_skipped_step_is_counted_nowhere_and_reported() -> None:
    w, b = keras.Variable([1.0], name="w"), keras.Variable([1.0], name="b")
    counter = keras.Variable(0, dtype="int64", trainable=False)
    optimizer = scaled()
    optimizer.apply_gradients([([NAN], w), ([1.0], b)], counter)
    assert int(counter) == int(optimizer.iterations) == 0
    report = optimizer.last_step
    assert (report.applied, report.nonfinite) == (False, ("w",))
    assert report.skipped == ("w", "b")
    assert "32768 -> 16384" in report.reason
    optimizer.apply_gradients([([1.0], w), ([1.0], b)], counter)
    assert int(counter) == int(optimizer.iterations) == 1
    assert optimizer.last_step.applied and optimizer.last_step.nonfinite == ()


# Fit


@pytest.mark.sample(1)
@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_fit_leaves_an_overflowing_batch_out(jit: bool) -> None:
    optimizer = scaled(DynamicLossScale(64.0, 2))
    model = model_with(optimizer, jit_compile=jit)
    fit(model, BAD)
    # Finite, overflow, finite: the scale is halved once, two steps are counted.
    assert float(optimizer.loss_scale) == 32
    assert int(optimizer.iterations) == 2 and optimizer.last_step == NO_EAGER_STEP
    kept = [*range(4), *range(8, 12)]
    without = model_with(momentum(), jit_compile=jit)
    without.fit(X[kept], Y[kept], batch_size=4, shuffle=False, verbose=0)
    # A power of two leaves no trace where nothing overflows.
    assert bits(model.trainable_variables) == bits(without.trainable_variables)
    assert bits(optimizer.inner_optimizer.variables) == bits(
        without.optimizer.variables
    )


def half_precision(optimizer: Any, **options: Any) -> keras.Model:
    policy = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    try:
        return model_with(optimizer, jit_compile=False, **options)
    finally:
        keras.mixed_precision.set_dtype_policy(policy)


def test_under_mixed_float16_keras_adds_no_scaling_of_its_own(tmp_path: Path) -> None:
    optimizer = scaled(DynamicLossScale(2.0**10))
    model = half_precision(optimizer)
    assert model.optimizer is optimizer
    fit(model, X * np.float32(2**-14))
    slots = [optimizer.get_slot(v, "momentum") for v in model.trainable_variables]
    assert model.dtype_policy.name == "mixed_float16"
    assert all(np.any(slot.numpy()) for slot in slots)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert type(again) is type(optimizer)
    assert bits(again.variables) == bits(optimizer.variables)


def test_under_mixed_float16_what_overflows_half_precision_lowers_the_scale() -> None:
    optimizer = scaled(DynamicLossScale(2.0**24))
    model = half_precision(optimizer)
    before = bits(model.trainable_variables)
    fit(model, X)
    assert bits(model.trainable_variables) == before
    assert float(optimizer.loss_scale) == 2.0**21


# A stall


def test_a_stall_warns_once_or_raises() -> None:
    w, nan = keras.Variable([1.0], name="w"), [tf.constant([NAN])]
    optimizer = scaled(DynamicLossScale(2.0), floor_patience=3)
    for _ in range(2):
        optimizer.apply(nan, [w])
    with pytest.warns(UserWarning, match="3 skipped in a row at loss scale 1.*: w;"):
        optimizer.apply(nan, [w])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.apply(nan, [w])
    raising = scaled(8.0, at_floor="raise", floor_patience=1)
    with pytest.raises(errors.ScaleStalledError, match="not finite: w"):
        raising.apply(nan, [w])


def test_a_stall_in_fit_raises_and_names_the_tensors() -> None:
    optimizer = scaled(DynamicLossScale(2.0), at_floor="raise", floor_patience=5)
    model = model_with(optimizer, jit_compile=False)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"5 skipped in a row at loss scale 1, not finite: .*kernel",
    ):
        fit(model, X * np.float32(NAN), epochs=9)
    assert int(optimizer.skipped_in_a_row) == 5


@pytest.mark.sample(1)
@pytest.mark.parametrize("at_floor", ["warn", "ignore"])
def test_a_stall_in_fit_is_printed_once_or_ignored(at_floor: str, capfd: Any) -> None:
    optimizer = scaled(2.0, at_floor=at_floor, floor_patience=3)
    fit(model_with(optimizer, jit_compile=False), X * np.float32(NAN), epochs=3)
    told = capfd.readouterr().err.count("3 skipped in a row at loss scale 2")
    assert told == (1 if at_floor == "warn" else 0)
    assert int(optimizer.skipped_in_a_row) == 9


def test_an_optimizer_that_scales_by_a_factor_is_refused() -> None:
    inner = keras.optimizers.SGD(1.0, loss_scale_factor=16.0)
    wrapped = MultitaskOptimizerWrapper(inner)
    for kind in (MixedPrecisionLossScaleOptimizer, MixedPrecisionOptimizerWrapper):
        for optimizer in (inner, wrapped):
            # A norm was that of gradients times 16, a penalty was divided by 16.
            with pytest.raises(
                errors.UnsupportedError, match="SGD with loss_scale_factor=16"
            ):
                kind(optimizer, 8.0)
    weight = keras.Variable([1.0])
    with pytest.raises(errors.UnsupportedError, match="leave loss_scale_factor out"):
        optimize_loss(lambda: weight, inner, None, lambda t: 1.0, var_list=[weight])


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


def test_scales_of_float8_are_refused() -> None:
    scale = keras.Variable([1.0])
    scale.overwrite_with_gradient = True
    with pytest.raises(errors.UnsupportedError, match="float8"):
        scaled().build([scale])


def test_a_norm_that_overflows_is_an_overflow_and_reported() -> None:
    w = keras.Variable([0.0, 0.0], name="w")
    optimizer = scaled("dynamic", clip_norm=2.5)
    optimizer.apply([tf.constant([3.0, 4.0])], [w])
    assert w.numpy().tolist() == [-0.1875, -0.25]
    assert (optimizer.last_step.norm, optimizer.last_step.clip_factor) == (5, 0.5)
    optimizer.apply([tf.constant([1e30, 4.0])], [w])
    assert optimizer.last_step.norm == np.inf and not optimizer.last_step.applied
    assert float(optimizer.loss_scale) == 2.0**14


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
