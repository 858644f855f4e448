"""Float32 masters inside and around other wrappers."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from lockstep.keras3 import MultitaskOptimizerWrapper, VariableClippingOptimizer
from lockstep.keras3.tests.masters.models import (
    MODES,
    bits,
    each_mode,
    half,
    masters_of,
)
from lockstep.messages import errors

pytestmark = pytest.mark.filterwarnings(
    # Keras hands its variables to NumPy in a way that NumPy 2 warns of.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)


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


def test_a_multitask_wrapper_around_it_knows_the_pairs_of_masters() -> None:
    w, z = half([1.0]), half([1.0], name="z")
    optimizer = MultitaskOptimizerWrapper(masters_of(None, 8.0))
    optimizer.build([w, z])
    gradient = tf.Variable([1.0], dtype=tf.float16)

    def loss() -> tf.Tensor:
        return tf.reduce_sum(w.value + z.value * gradient)

    optimizer.minimize(loss, var_list=[w, z])
    before = bits([z])
    gradient.assign([0.0])
    optimizer.minimize(loss, var_list=[w, z])
    assert bits([z]) == before


def test_row_clipping_goes_inside_and_is_refused_around() -> None:
    w = half([[3.0, 4.0]])
    inner = VariableClippingOptimizer(keras.optimizers.SGD(1.0), {"w": [1]}, 2.5)
    optimizer = masters_of(inner)
    optimizer.apply([tf.zeros([1, 2], tf.float16)], [w])
    assert optimizer.master(w).numpy().tolist() == w.numpy().tolist() == [[1.5, 2.0]]
    around = VariableClippingOptimizer(masters_of(), {"w": [1]}, 2.5)
    with pytest.raises(errors.UnsupportedError, match="inside of the masters' wrapper"):
        around.apply([tf.zeros([1, 2], tf.float16)], [half([[3.0, 4.0]])])
