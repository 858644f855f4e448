"""Float32 masters as a citizen of Keras: steps, tapes, and what others write."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import errors
from lockstep.keras3 import (
    MixedPrecisionOptimizerWrapper,
)
from lockstep.keras3.tests.masters.models import (
    MODES,
    NAN,
    TINY,
    bits,
    each_half,
    each_mode,
    half,
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


@each_mode
def test_a_tape_with_scale_loss_does_the_same(mode: str) -> None:
    w = half([1.0, 1.0])
    # The gradient of the unscaled loss, 2^-27, is 0 in float16.
    optimizer = masters_of(keras.optimizers.SGD(2.0**24), 2.0**15)
    optimizer.build([w])

    def step() -> None:
        with tf.GradientTape() as tape:
            small = tf.reduce_sum(tf.cast(w.value, tf.float32)) * 2.0**-27
            loss = optimizer.scale_loss(small)
        optimizer.apply([tape.gradient(loss, w.value)], [w])

    MODES[mode](step)()
    assert optimizer.master(w).numpy().tolist() == [0.875, 0.875]


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
