"""Rules of Keras beside what they fail at: repeated rows, NaN, and no elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import keras3

NAN = float("nan")


def rows_of(indices: list[int], values: Any, count: int) -> tf.IndexedSlices:
    shape = tf.constant([count, 2], tf.int64)
    return tf.IndexedSlices(tf.constant(values, tf.float32), indices, shape)


def apply(optimizer: Any, mode: str, gradients: Any, variables: Any) -> None:
    optimizer.build(variables)
    if mode == "eager":
        optimizer.apply(gradients, variables)
    else:
        tf.function(lambda: optimizer.apply(gradients, variables))()


@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("name", ["Ftrl", "RMSProp"])
def test_a_variable_without_rows_is_left_alone(name: str, mode: str) -> None:
    """Keras' sum takes it for a bias, which its kernel refuses."""
    empty = keras.Variable(np.zeros((0, 3), np.float32))
    w = keras.Variable([1.0, 2.0])
    made = getattr(keras3, f"{name}Optimizer")(0.5)
    apply(made, mode, [tf.zeros((0, 3)), tf.constant([0.5, 0.5])], [empty, w])
    assert empty.shape == (0, 3)
    assert not np.isin(w.numpy(), [1.0, 2.0]).any()


MADE: dict[str, Callable[[], Any]] = {
    "adagrad": lambda: keras3.AdagradOptimizer(0.5),
    "rmsprop": lambda: keras3.RMSPropOptimizer(0.5),
    "rmsprop with momentum": lambda: keras3.RMSPropOptimizer(0.5, momentum=0.5),
}


@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("name", MADE)
def test_a_row_that_is_named_twice_may_be_nan(name: str, mode: str) -> None:
    """Keras' division looks for the rows where the divisor is NaN, each once."""
    start = np.float32([[1, 2], [3, 4], [5, 6]])
    twice = rows_of([2, 0, 2], [[1, NAN], [0.5, 0.25], [1, 1]], 3)
    once = rows_of([0, 2], [[0.5, 0.25], [2, NAN]], 3)
    found = []
    for gradient in (twice, once):
        w = keras.Variable(start)
        apply(MADE[name](), mode, [gradient], [w])
        found.append(w.numpy())
    np.testing.assert_array_equal(*found)
    assert np.argwhere(np.isnan(found[0])).tolist() == [[2, 1]]
