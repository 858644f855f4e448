"""The two optimizers made here, and the names of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness.parity import drivers
from lockstep.tf import AdamWOptimizer, FtrlOptimizer, strict
from lockstep.tf.tests.trajectory import (
    RULES,
    TOLERANCE,
    assert_close,
    draw,
    replay,
    rows,
)

VALUES, *DENSE = draw(5, [(3,), (4, 2)], steps=3)
SPARSE = [[d[0], rows([3, 1, 3], d[1][:3], 4, 2)] for d in DENSE]


@pytest.mark.sample(15)
@pytest.mark.parametrize("rule", RULES)
def test_every_optimizer_equals_the_reference(
    new_driver: Callable[..., Any], names: Any, rule: str
) -> None:
    oracle = drivers.load("reference")
    steps = [*DENSE, *SPARSE]
    expected = replay(oracle, rule, lambda opt: opt, VALUES, steps)
    got = replay(new_driver(names), rule, lambda opt: opt, VALUES, steps)
    assert_close(got, expected, within=TOLERANCE.get(rule, 0))


@pytest.mark.parametrize("rate", [0.0, tf.Variable(0.0)], ids=["number", "variable"])
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "function"])
def test_ftrl_at_rate_zero_changes_nothing(rate: Any, traced: bool) -> None:
    w, table = tf.Variable([1.0, 2.0]), tf.Variable([[1.0], [2.0]])
    opt = FtrlOptimizer(rate)
    slices = tf.IndexedSlices(tf.constant([[3.0]]), tf.constant([1]))

    def step() -> None:
        opt.apply_gradients([(tf.ones([2]), w), (slices, table)])

    (tf.function(step, autograph=False) if traced else step)()
    assert w.numpy().tolist() == [1.0, 2.0]
    assert table.numpy().tolist() == [[1.0], [2.0]]
    assert (opt.get_slot(w, "accum").numpy() == np.float32(0.1)).all()
    assert not opt.get_slot(table, "linear").numpy().any()


def test_ftrl_moves_once_its_rate_leaves_zero() -> None:
    rate, w = tf.Variable(0.0), tf.Variable([1.0])
    opt = FtrlOptimizer(rate)

    @tf.function(autograph=False)
    def step() -> None:
        opt.apply_gradients([(tf.ones([1]), w)])

    step()
    assert w.numpy() == [1.0]
    rate.assign(0.1)
    step()
    assert w.numpy() != [1.0]


def test_strict_ftrl_fails_at_rate_zero_as_the_original() -> None:
    opt = strict.FtrlOptimizer(0.0)
    with pytest.raises(tf.errors.InvalidArgumentError):
        opt.apply_gradients([(tf.ones([1]), tf.Variable([1.0]))])


def test_adamw_takes_tensors_callables_and_float16() -> None:
    for decay in (tf.constant(0.25), lambda: 0.25):
        w = tf.Variable([4.0], dtype=tf.float16)
        opt = AdamWOptimizer(decay, learning_rate=0.0, epsilon=1e-4)
        opt.apply_gradients([(tf.ones([1], tf.float16), w)])
        assert w.numpy().tolist() == [3.0]


def test_strict_adamw_does_not_check_its_arguments() -> None:
    w = tf.Variable([4.0])
    strict.AdamWOptimizer(-0.25, 0.0).apply_gradients([(tf.ones([1]), w)])
    assert w.numpy().tolist() == [5.0]
