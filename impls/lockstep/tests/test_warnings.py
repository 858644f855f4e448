"""A warning names the line of the user's program that called Lockstep."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lockstep import registry

pytestmark = pytest.mark.filterwarnings("default")

TABLE = np.full((4, 2), 3.0, np.float32)


def named_lines(program: Callable[[], object]) -> set[tuple[str, str]]:
    """Return the file and the text of each line that is warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program()
    assert caught
    return {
        (each.filename, linecache.getline(each.filename, each.lineno).strip())
        for each in caught
    }


def test_of_row_clipping_on_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow")
    ls = registry.load("tf")
    table = tf.Variable(TABLE)
    sgd = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    opt = ls.VariableClippingOptimizer(sgd, {table.ref(): [0]}, 1.0)
    outer = ls.MultitaskOptimizerWrapper(opt)

    def loss() -> Any:
        return tf.reduce_sum(tf.gather(table, [1]))

    @tf.function
    def train() -> None:
        opt.minimize(loss, var_list=[table])

    def steps() -> None:
        opt.minimize(loss, var_list=[table])  # eager
        outer.minimize(loss, var_list=[table])  # nested
        train()  # traced

    assert named_lines(steps) == {
        (__file__, "opt.minimize(loss, var_list=[table])  # eager"),
        (__file__, "outer.minimize(loss, var_list=[table])  # nested"),
        (__file__, "train()  # traced"),
    }


def test_of_row_clipping_on_keras() -> None:
    keras = pytest.importorskip("keras")
    ls = registry.load("keras3")
    model = keras.Sequential([keras.layers.Embedding(4, 2, name="words")])
    model.build((None, 1))
    (table,) = model.trainable_variables
    sgd = keras.optimizers.SGD(0.1)
    opt = ls.VariableClippingOptimizer(sgd, {table.path: [0]}, 1.0)
    model.compile(opt, "mse")
    words, vectors = np.ones((2, 1), np.int32), np.ones((2, 1, 2), np.float32)

    def fit() -> None:
        model.fit(words, vectors, verbose=0)

    assert named_lines(fit) == {(__file__, "model.fit(words, vectors, verbose=0)")}


def test_of_row_clipping_and_a_schedule_on_pytorch() -> None:
    torch = pytest.importorskip("torch")
    ls = registry.load("pytorch")
    table = torch.nn.Parameter(torch.tensor(TABLE))
    sgd = torch.optim.SGD([table], 0.1)
    opt = ls.VariableClippingOptimizer(sgd, {table: [0, 1]}, 1.0)
    outer = ls.MultitaskOptimizerWrapper(opt)
    schedule = ls.PolicyLR(outer, "poly_decay", decay_steps=4)

    def steps() -> None:
        schedule.step()
        word = torch.nn.functional.embedding(torch.tensor([1]), table, sparse=True)
        word.sum().backward()
        outer.step()

    assert named_lines(steps) == {
        (__file__, "schedule.step()"),
        (__file__, "outer.step()"),
    }


@pytest.mark.parametrize("backend", ["tf", "keras3"])
def test_of_a_stalled_loss_scale(backend: str) -> None:
    ls, weight, sgd, infinite = made(backend)
    scale = ls.DynamicLossScale(1.0)
    opt = ls.MixedPrecisionLossScaleOptimizer(sgd, scale, floor_patience=1)

    def step() -> None:
        opt.apply_gradients([(infinite, weight)])

    line = "opt.apply_gradients([(infinite, weight)])"
    assert named_lines(step) == {(__file__, line)}


def made(backend: str) -> tuple[Any, Any, Any, Any]:
    """Return a backend with a weight, an optimizer and an infinite gradient."""
    infinite = np.array([np.inf], np.float32)
    tf = pytest.importorskip("tensorflow")
    ls, gradient = registry.load(backend), tf.constant(infinite)
    if backend == "tf":
        sgd = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        return ls, tf.Variable([1.0]), sgd, gradient
    keras = pytest.importorskip("keras")
    return ls, keras.Variable([1.0]), keras.optimizers.SGD(0.1), gradient
