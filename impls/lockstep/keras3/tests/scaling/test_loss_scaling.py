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
    optimize_loss,
)
from lockstep.keras3.tests.scaling.models import (
    BAD,
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


# State


# Skipping


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


@pytest.mark.sample(1)
@each_mode
def test_the_scale_stays_finite_under_zero_gradients(mode: str) -> None:
    w = keras.Variable([1.0, 2.0])
    scale = DynamicLossScale(2.0**15, increment_period=1)
    step = stepper(scaled(scale), [w], mode)
    for _ in range(300):
        step([[0.0, 0.0]])
    assert float(scale()) == 2.0**127
    assert w.numpy().tolist() == [1.0, 2.0]


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


# Files

TRAIN = """
import sys, keras, numpy as np
from lockstep.keras3 import *
path, resumes = sys.argv[1], int(sys.argv[2])
x = np.random.RandomState(0).randn(12, 3).astype(np.float32)
y = x[:, :1].copy()
x[5] = np.inf
def fit():
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    print(float(model.optimizer.loss_scale))
if resumes:
    model = keras.models.load_model(path)
else:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(1)])
    inner = MultitaskOptimizerWrapper(keras.optimizers.Adam(0.1))
    scale = DynamicLossScale(64.0, 4, hysteresis=2)
    opt = MixedPrecisionLossScaleOptimizer(inner, scale, clip_norm=0.5)
    model.compile(opt, "mse", jit_compile=False)
    fit()
    model.save(path)
fit()
for variable in [*model.variables, *model.optimizer.variables]:
    print(np.asarray(variable.numpy()).tobytes().hex())
"""


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
