"""What optimizers show of themselves, and options that take more than one form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import keras3 as ls
from lockstep.errors import (
    OutOfRangeError,
    UnknownNameError,
)


def sgd() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.5)


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_a_loss_may_return_more_than_the_loss(mode: str) -> None:
    w = keras.Variable([2.0], name="w")

    def loss(x: Any) -> Any:
        product = w * x
        return tf.reduce_sum(product), product, {"x": x}

    step = ls.optimize_loss(loss, "SGD", {}, 0.5, [w], on_horovod=True)
    take = tf.function(step) if mode == "function" else step
    value, product, named = take(tf.constant([3.0]))
    assert (float(value), float(product[0]), float(named["x"][0])) == (6.0, 6.0, 3.0)
    assert w.numpy().tolist() == [0.5]


ROWS = np.array([[3.0, 4.0], [0.25, 0.5]], np.float32)


def tables() -> list[keras.Variable]:
    return [keras.Variable(ROWS, name=name) for name in ("near", "far")]


def test_each_table_may_have_a_norm_of_its_own() -> None:
    near, far = tables()
    dims = {"near": [1], far.value.ref(): [1]}
    norms = {far.value.ref(): 10.0, "near": 2.5}
    optimizer = ls.VariableClippingOptimizer(sgd(), dims, norms)
    zero = tf.zeros([2, 2])
    optimizer.apply([zero, zero], [near, far])
    assert near.numpy().tolist() == [[1.5, 2.0], [0.25, 0.5]]
    assert far.numpy().tolist() == ROWS.tolist()
    assert optimizer.get_config()["max_norm"] == {"near": 2.5, "far": 10.0}
    again = ls.VariableClippingOptimizer.from_config(optimizer.get_config())
    near, far = tables()
    again.apply([zero, zero], [near, far])
    assert near.numpy()[0].tolist() == [1.5, 2.0] and far.numpy()[0, 0] == 3.0


@pytest.mark.parametrize(
    ("norms", "error", "sentence"),
    [
        ({"near": 1.0}, UnknownNameError, "got none for 'far'"),
        ({"near": 1.0, "far": 1.0, "fat": 1.0}, UnknownNameError, "one for 'fat'"),
        ({"near": 1.0, "far": 0.0}, OutOfRangeError, "a finite number > 0, got 0.0"),
    ],
)
def test_norms_that_do_not_fit_are_refused(
    norms: Any, error: Any, sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        ls.VariableClippingOptimizer(sgd(), {"near": [1], "far": [1]}, norms)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_norms_by_table_are_in_files(tmp_path: Path) -> None:
    layers = [keras.Input([2]), keras.layers.Dense(2, name="a", use_bias=False)]
    model = keras.Sequential([*layers, keras.layers.Dense(1, name="b", use_bias=False)])
    paths = [weight.path for weight in model.trainable_variables]
    dims = {path: [0] for path in paths}
    norms = dict(zip(paths, (0.5, 0.25), strict=True))
    model.compile(ls.VariableClippingOptimizer(sgd(), dims, norms), "mse")
    x = np.ones((4, 2), np.float32)
    model.fit(x, 50 * x[:, :1], verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.fit(x, 50 * x[:, :1], verbose=0)
    sizes = [np.linalg.norm(w, axis=0).max() for w in loaded.get_weights()]
    assert sizes[0] <= 0.5 and 0.2 < sizes[1] <= 0.25
