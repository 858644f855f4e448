"""Float32 masters as a citizen of Keras: steps, tapes, and what others write."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import errors
from lockstep.keras3 import (
    DynamicLossScale,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    mp_regularizer_wrapper,
)
from lockstep.keras3.tests.models import (
    MODES,
    NAN,
    TINY,
    bits,
    each_half,
    each_mode,
    fit,
    half,
    half_model,
    masters_of,
    momentum,
    rounded,
)

pytestmark = pytest.mark.filterwarnings(
    # Keras hands its variables to NumPy in a way that NumPy 2 warns of.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)


@pytest.mark.sample(3)
@each_half
@each_mode
def test_steps_too_small_for_the_weight_add_up_in_the_master(
    mode: str, dtype: str
) -> None:
    w, b = half([1.0, 2.0], dtype), keras.Variable([1.0], name="b")
    optimizer = masters_of(keras.optimizers.SGD(TINY), 8.0)
    optimizer.build([w, b])
    step = MODES[mode](lambda: optimizer.apply([tf.ones([2], dtype), ONE], [w, b]))
    for _ in range(64):
        step()
    assert optimizer.master(w).numpy().tolist() == [1 - 64 * TINY, 2 - 64 * TINY]
    assert bits([w])[0] == rounded(optimizer.master(w), dtype)
    assert np.asarray(w.numpy(), np.float32)[0] < 1
    assert optimizer.master(b) is b and b.numpy().tolist() == [1 - 64 * TINY]


ONE = tf.constant([1.0])


@each_mode
def test_compute_gradients_returns_float32_gradients_of_masters(mode: str) -> None:
    w = half([1.0, 1.0])
    optimizer = masters_of(keras.optimizers.SGD(0.125), 8.0)
    optimizer.build([w])
    given = tf.constant([1.0, 2.0], tf.float16)

    def step() -> tf.Tensor:
        loss = lambda: tf.reduce_sum(w.value * given)  # noqa: E731
        pairs = optimizer.compute_gradients(loss, [w])
        assert pairs[0][1] is optimizer.master(w)
        optimizer.apply_gradients(pairs)
        return pairs[0][0]

    gradient = MODES[mode](step)()
    assert gradient.dtype == tf.float32 and gradient.numpy().tolist() == [1, 2]
    assert w.numpy().tolist() == [0.875, 0.75]


@pytest.mark.sample(1)
@each_mode
def test_a_skipped_step_changes_no_bit(mode: str) -> None:
    w, b = half([1.0, 2.0]), keras.Variable([1.0], name="b")
    inner = keras.optimizers.AdamW(0.1, use_ema=True)
    optimizer = masters_of(inner, "dynamic", at_floor="ignore")
    optimizer.build([w, b])
    step = MODES[mode](lambda g: optimizer.apply([g, ONE], [w, b]))
    step(tf.constant([1.0, 2.0], tf.float16))
    before = bits([w, b, *optimizer.masters, *inner.variables])
    for _ in range(20):
        step(tf.constant([NAN, 1.0], tf.float16))
    assert bits([w, b, *optimizer.masters, *inner.variables]) == before
    assert float(optimizer.loss_scale) == 1
    assert int(optimizer.skipped_in_a_row) == 20
    step(tf.constant([1.0, 2.0], tf.float16))
    assert bits(optimizer.masters) != before[2:3]


def test_weights_saturate_and_masters_do_not() -> None:
    w = half([65504.0, -65504.0])
    optimizer = masters_of(keras.optimizers.SGD(1.0))
    optimizer.apply([tf.constant([-1000.0, 1000.0], tf.float16)], [w])
    assert w.numpy().tolist() == [65504, -65504]
    assert optimizer.master(w).numpy().tolist() == [66504, -66504]


@each_mode
def test_duplicate_rows_are_summed_in_float32(mode: str) -> None:
    table = half(np.zeros((3, 1)))
    optimizer = masters_of(keras.optimizers.SGD(0.5))
    optimizer.build([table])
    values = tf.constant([[4e4], [4e4], [1.0]], tf.float16)

    def step(values: tf.Tensor) -> None:
        shape = tf.constant([3, 1])
        optimizer.apply([tf.IndexedSlices(values, [2, 2, 0], shape)], [table])

    MODES[mode](step)(values)
    total = 2 * float(np.float16(4e4))
    master = optimizer.master(table).numpy().ravel().tolist()
    assert master == [-0.5, 0, -total / 2]


@each_mode
def test_the_clip_is_of_unscaled_gradients(mode: str) -> None:
    w = half([0.0, 0.0])
    optimizer = masters_of(keras.optimizers.SGD(1.0), 64.0, clip_norm=2.5)
    optimizer.build([w])
    given = tf.constant([3.0, 4.0], tf.float16)

    def step() -> None:
        loss = lambda: tf.reduce_sum(w.value * given)  # noqa: E731
        optimizer.minimize(loss, var_list=[w])

    MODES[mode](step)()
    assert optimizer.master(w).numpy().tolist() == [-1.5, -2]


def test_masters_follow_what_is_written_into_the_model() -> None:
    w = half([1.0, 1.0])
    optimizer = masters_of(keras.optimizers.SGD(TINY))
    gradient = tf.ones([2], tf.float16)
    optimizer.apply([gradient], [w])
    w.assign(tf.constant([1.0, 3.0], tf.float16))
    optimizer.apply([gradient], [w])
    # Where the weight is what its master rounds to, the master has kept its digits.
    assert optimizer.master(w).numpy().tolist() == [1 - 2 * TINY, 3 - TINY]


def test_bad_input_is_refused_before_anything_changes() -> None:
    with pytest.raises(errors.NotScalableError, match="an instance"):
        MixedPrecisionOptimizerWrapper(keras.optimizers.SGD)
    for scale in (0.0, -1, NAN, "Backoff"):
        with pytest.raises(ValueError, match="loss_scale"):
            masters_of(None, scale)
    with pytest.raises(ValueError, match="clip_norm"):
        masters_of(None, clip_norm=0.0)
    w, built = half([1.0]), momentum()
    built.build([w])
    with pytest.raises(errors.UnsupportedError, match="not built yet"):
        masters_of(built).build([w])
    with pytest.raises(errors.UnsupportedError, match="MixedPrecisionOptimizerWrapper"):
        masters_of().master(w)
    with pytest.raises(TypeError, match="float16"):
        masters_of().apply([tf.cast(ONE, tf.float64)], [w])


@pytest.mark.sample(2)
@each_mode
def test_a_multitask_wrapper_around_it_keeps_masters_too(mode: str) -> None:
    w, z = half([1.0]), half([1.0], name="z")
    inside = masters_of()
    optimizer = MultitaskOptimizerWrapper(inside)
    optimizer.build([w, z])
    step = MODES[mode](lambda a, b: optimizer.apply([a, b], [w, z]))
    one, zero = tf.ones([1], tf.float16), tf.zeros([1], tf.float16)
    step(one, one)
    slot = inside.get_slot(z, "momentum")
    before = bits([z, inside.master(z), slot])
    step(one, zero)
    assert bits([z, inside.master(z), slot]) == before
    assert w.numpy()[0] < z.numpy()[0]


def accumulating() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.5, gradient_accumulation_steps=2)


@pytest.mark.sample(1)
@each_mode
def test_a_sum_whose_last_gradient_is_absent_reaches_the_model(mode: str) -> None:
    w, z = half([1.0]), half([1.0], name="z")
    optimizer = masters_of(MultitaskOptimizerWrapper(accumulating()))
    optimizer.build([w, z])
    one = tf.ones([1], tf.float16)
    MODES[mode](lambda: optimizer.apply([one, one], [w, z]))()
    MODES[mode](lambda: optimizer.apply([one, None], [w, z]))()
    assert z.numpy().tolist() == optimizer.master(z).numpy().tolist() == [0.75]


@pytest.mark.sample(2)
@each_mode
def test_accumulated_gradients_are_judged_around_it(mode: str) -> None:
    w, z = half([1.0]), half([1.0], name="z")
    optimizer = MultitaskOptimizerWrapper(masters_of(accumulating()))
    optimizer.build([w, z])
    step = MODES[mode](lambda a, b: optimizer.apply([a, b], [w, z]))
    # The second sum of z begins at 0, after its first one cancelled.
    for first, second in ((1.0, 1.0), (1.0, -1.0), (0.0, 0.5), (0.0, 0.5)):
        step(tf.constant([first], tf.float16), tf.constant([second], tf.float16))
    assert (w.numpy().tolist(), z.numpy().tolist()) == ([0.5], [0.75])


def test_a_multitask_wrapper_around_it_lets_averages_follow() -> None:
    w, z = half([1.0]), half([3.0], name="z")
    inner = keras.optimizers.SGD(0.5, use_ema=True)
    optimizer = MultitaskOptimizerWrapper(masters_of(inner))
    one, zero = tf.ones([1], tf.float16), tf.zeros([1], tf.float16)
    optimizer.apply([one, zero], [w, z])
    assert optimizer.get_slot(z, "average").numpy().tolist() == [3.0]


def test_row_clipping_goes_inside_and_is_refused_around() -> None:
    w = half([[3.0, 4.0]])
    inner = VariableClippingOptimizer(keras.optimizers.SGD(1.0), {"w": [1]}, 2.5)
    optimizer = masters_of(inner)
    optimizer.apply([tf.zeros([1, 2], tf.float16)], [w])
    assert optimizer.master(w).numpy().tolist() == w.numpy().tolist() == [[1.5, 2.0]]
    around = VariableClippingOptimizer(masters_of(), {"w": [1]}, 2.5)
    with pytest.raises(errors.UnsupportedError):
        around.apply([tf.zeros([1, 2], tf.float16)], [half([[3.0, 4.0]])])


def test_load_weights_moves_the_masters(tmp_path: Path) -> None:
    model = half_model(masters_of(keras.optimizers.SGD(0.0)), jit_compile=False)
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    saved = bits(model.trainable_variables)
    model.optimizer.learning_rate = 0.5
    fit(model)
    assert bits(model.trainable_variables) != saved
    model.load_weights(path)
    model.optimizer.learning_rate = 0.0
    fit(model)
    assert bits(model.trainable_variables) == saved
    wide = [tf.cast(v.value, tf.float32) for v in model.trainable_variables]
    assert bits(model.optimizer.masters) == bits(wide)


@pytest.mark.sample(1)
@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
@each_half
def test_fit_scales_and_trains_through_masters(jit: bool, dtype: str) -> None:
    scale = DynamicLossScale(2.0**4, increment_period=2)
    model = half_model(masters_of(None, scale), dtype, jit_compile=jit)
    before = bits(model.trainable_variables)
    fit(model, epochs=2)
    optimizer = model.optimizer
    assert int(optimizer.iterations) == 6 and float(scale()) == 2.0**7
    assert len(optimizer.masters) == 4
    pairs = zip(model.trainable_variables, before, strict=True)
    for variable, first in pairs:
        master = optimizer.master(variable)
        assert master.dtype == "float32" and variable.dtype == dtype
        assert bits([variable])[0] == rounded(master, dtype) != first


def test_under_mixed_float16_it_scales_and_makes_no_masters() -> None:
    optimizer = masters_of(None, DynamicLossScale(2.0**10))
    model = half_model(optimizer, "mixed_float16", jit_compile=False)
    assert model.optimizer is optimizer
    fit(model)
    assert optimizer.masters == [] and int(optimizer.iterations) == 3
    assert all(v.dtype == "float32" for v in model.trainable_variables)


def test_averages_constraints_and_exclusions_are_those_of_the_weights() -> None:
    w, v = half([1.0, 4.0]), half([2.0], name="v")
    w.constraint = keras.constraints.MaxNorm(2.5, axis=0)
    inner = keras.optimizers.SGD(1.0, weight_decay=0.5, use_ema=True, ema_momentum=0.5)
    optimizer = masters_of(inner)
    optimizer.exclude_from_weight_decay(var_list=[w])
    # Keras keeps the average before the constraint: 0.5 (1, 4) + 0.5 (4, 8).
    for gradient in ([0.0, 1.0], [-3.0, 0.0]):
        optimizer.apply(
            [tf.constant(gradient, tf.float16), tf.zeros([1], "half")], [w, v]
        )
    assert v.numpy().tolist() == [0.5]
    assert np.linalg.norm(w.numpy().astype(np.float32)) <= 2.502
    assert np.linalg.norm(optimizer.master(w).numpy()) <= 2.500001
    optimizer.finalize_variable_values([w, v])
    average = optimizer.get_slot(w, "average").numpy()
    assert optimizer.master(w).numpy().tolist() == average.tolist()
    assert bits([w])[0] == rounded(optimizer.master(w), "float16")


@pytest.mark.filterwarnings("ignore:Gradients do not exist:UserWarning")
def test_averages_are_assigned_to_variables_without_a_gradient_too() -> None:
    options = {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 3}
    ends = []
    for dtype, wrap in (("float16", masters_of), ("float32", lambda inner: inner)):
        w, v = half([1.0], dtype), half([2.0], dtype, name="v")
        optimizer = wrap(keras.optimizers.SGD(0.5, **options))
        one = tf.ones([1], dtype)
        for gradient in (one, one, None, one):
            optimizer.apply([one, gradient], [w, v])
        ends.append([v.numpy().astype(np.float32) for v in (w, v)])
    np.testing.assert_array_equal(*ends)


@each_mode
def test_a_regularizer_acts_on_the_master(mode: str) -> None:
    w = half([1.0, 2.0])
    regularizer = mp_regularizer_wrapper(keras.regularizers.L2(0.5))
    assert float(regularizer(w)) == 0
    optimizer = masters_of(keras.optimizers.SGD(2.0**-12), 8.0)
    optimizer.build([w])
    step = MODES[mode](lambda: optimizer.apply([tf.zeros([2], tf.float16)], [w]))
    expected = np.float32([1.0, 2.0])
    for _ in range(3):
        step()
        expected = expected - np.float32(2.0**-12) * expected
    # The weight itself has not moved at the first step: it is not what is penalised.
    assert optimizer.master(w).numpy().tolist() == expected.tolist()


def test_a_layer_takes_the_regularizer_and_a_file_keeps_it(tmp_path: Path) -> None:
    def model_of(dtype: str) -> keras.Model:
        keras.utils.set_random_seed(0)
        kernel = mp_regularizer_wrapper(keras.regularizers.L2(0.25))
        layer = keras.layers.Dense(1, dtype=dtype, kernel_regularizer=kernel)
        model = keras.Sequential([keras.layers.Input([3], dtype="float16"), layer])
        optimizer = masters_of(keras.optimizers.SGD(0.5), 64.0)
        model.compile(optimizer, "mse", jit_compile=False)
        return model

    x = np.zeros((4, 3), np.float16)
    for dtype in ("float16", "float32"):
        model = model_of(dtype)
        kernel = model.layers[0].kernel
        first = np.asarray(kernel.numpy(), np.float32)
        model.fit(x, x[:, :1], verbose=0)
        master = model.optimizer.master(kernel).numpy()
        np.testing.assert_array_equal(master, first - 0.5 * (0.5 * first))
    model_of("float16").save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").layers[0]
    assert float(again.kernel_regularizer(again.kernel)) == 0
    assert again.kernel_regularizer.regularizer.l2 == np.float32(0.25)
