"""Losses with extras, rates that are numbers, norms for each table, and reprs."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from lockstep import tf as ls

v1 = tf.compat.v1


def test_a_loss_with_extras_makes_the_step_return_them() -> None:
    w = tf.Variable([1.0, 2.0])

    def loss(factor: Any) -> Any:
        return factor * tf.reduce_sum(w), {"predicted": w * 1.0}, "text"

    step = ls.optimize_loss(loss, "SGD", {}, 0.5, [w])
    value, extras, text = step(2.0)
    assert float(value) == 6.0 and text == "text"
    assert extras["predicted"].numpy().tolist() == [1.0, 2.0]
    assert w.numpy().tolist() == [0.0, 1.0]


def test_extras_come_out_of_a_function() -> None:
    w = tf.Variable([1.0, 2.0])
    step = ls.optimize_loss(lambda: (tf.reduce_sum(w), w * 1.0), "SGD", {}, 0.5, [w])
    value, extra = tf.function(lambda: step(), autograph=False)()
    assert float(value) == 3.0 and extra.numpy().tolist() == [1.0, 2.0]


def test_a_number_is_a_rate_in_a_graph_too() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        w = tf.Variable([1.0, 2.0])
        done = ls.optimize_loss(tf.reduce_sum(w), "SGD", {}, 0.5, [w])
        session.run(v1.global_variables_initializer())
        session.run(done)
        assert session.run(w).tolist() == [0.5, 1.5]


def sgd() -> Any:
    return ls.GradientDescentOptimizer(1.0)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_every_table_has_its_own_limit(sparse: bool) -> None:
    a, b = (tf.Variable([[3.0, 4.0], [6.0, 8.0]], name=name) for name in "ab")
    dims = {a.ref(): [1], b.ref(): [1]}
    opt = ls.VariableClippingOptimizer(sgd(), dims, {a.ref(): 2.5, b.ref(): 7.5})
    zero = tf.zeros([2, 2])
    rows = tf.IndexedSlices(zero, tf.constant([0, 1]))
    opt.apply_gradients([(rows if sparse else zero, w) for w in (a, b)])
    assert tf.norm(a, axis=1).numpy().tolist() == pytest.approx([2.5, 2.5], rel=1e-6)
    assert tf.norm(b, axis=1).numpy().tolist() == pytest.approx([5.0, 7.5], rel=1e-6)


def test_reprs_show_what_is_inside() -> None:
    stack = ls.MixedPrecisionLossScaleOptimizer(ls.MultitaskOptimizerWrapper(sgd()), 8)
    inner = "MultitaskOptimizerWrapper(GradientDescentOptimizer)"
    shown = f"MixedPrecisionLossScaleOptimizer({inner}, FixedLossScale(8.0))"
    assert repr(stack) == shown
