"""Float32 masters inside and around other wrappers."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from lockstep import errors
from lockstep.keras3 import MultitaskOptimizerWrapper, VariableClippingOptimizer
from lockstep.keras3.tests.masters.models import (
    MODES,
    bits,
    each_mode,
    half,
    masters_of,
)

pytestmark = pytest.mark.filterwarnings(
    # Keras hands its variables to NumPy in a way that NumPy 2 warns of.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)


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
