"""The rules of TensorFlow 1 as v1 optimizers; their numbers are checked by parity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness.parity import drivers
from lockstep import tf as ls
from lockstep.errors import UnsupportedError
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


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "function"])
def test_ftrl_moves_once_its_rate_leaves_zero(traced: bool) -> None:
    rate, w = tf.Variable(0.0), tf.Variable([1.0])
    opt = FtrlOptimizer(rate)

    def step() -> None:
        opt.apply_gradients([(tf.ones([1]), w)])

    step = tf.function(step, autograph=False) if traced else step
    step()
    assert w.numpy() == [1.0]
    rate.assign(0.1)
    step()
    assert w.numpy() != [1.0]


def test_strict_ftrl_fails_at_rate_zero_as_the_original() -> None:
    opt = strict.FtrlOptimizer(0.0)
    with pytest.raises(tf.errors.InvalidArgumentError):
        opt.apply_gradients([(tf.ones([1]), tf.Variable([1.0]))])


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_ftrl_keeps_a_nan_visible(bad: float, sparse: bool) -> None:
    w = tf.Variable([[1.0], [1.0]])
    opt = FtrlOptimizer(0.25)
    rows = tf.IndexedSlices(tf.constant([[bad]]), tf.constant([0]), [2, 1])
    opt.apply_gradients([(rows if sparse else tf.constant([[bad], [1.0]]), w)])
    assert np.isnan(w.numpy()[0, 0]) and np.isfinite(w.numpy()[1, 0])
    opt.apply_gradients([(tf.ones([2, 1]), w)])
    assert np.isnan(w.numpy()[0, 0])


def test_ftrl_keeps_a_nan_visible_in_reference_variables() -> None:
    # Several variables, because a read before the update is a race.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        start = np.ones(3, np.float32)
        weights = [tf.compat.v1.Variable(start, use_resource=False) for _ in range(10)]
        gradient = tf.compat.v1.placeholder(tf.float32, [3])
        step = FtrlOptimizer(0.25).apply_gradients([(gradient, w) for w in weights])
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(step, {gradient: [np.nan] * 3})
        assert np.isnan(session.run(weights)).all()


def test_strict_ftrl_turns_a_dense_nan_into_zero() -> None:
    w = tf.Variable([1.0, 1.0])
    strict.FtrlOptimizer(0.25).apply_gradients([(tf.constant([np.nan, 1.0]), w)])
    assert w.numpy()[0] == 0.0


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


# -- half precision --------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, tf.DType, str]] = {
    "Adam, 1 - beta2": (lambda: ls.AdamOptimizer(0.01), tf.bfloat16, "1 - beta2"),
    "Adam, 1 - beta1": (
        lambda: ls.AdamOptimizer(0.01, 0.999, 0.99),
        tf.bfloat16,
        "1 - beta1",
    ),
    "Adam, epsilon": (lambda: ls.AdamOptimizer(0.01), tf.float16, "epsilon"),
    "AdamW, epsilon": (lambda: ls.AdamWOptimizer(0.1, 0.01), tf.float16, "epsilon"),
    "RMSProp, epsilon": (lambda: ls.RMSPropOptimizer(0.01), tf.float16, "epsilon"),
    "RMSProp, 1 - decay": (
        lambda: ls.RMSPropOptimizer(0.01, 0.999),
        tf.bfloat16,
        "1 - decay",
    ),
}
ALLOWED: dict[str, tuple[Any, tf.DType]] = {
    "Adam in bfloat16": (lambda: ls.AdamOptimizer(0.01, beta2=0.99), tf.bfloat16),
    "Adam in float16": (lambda: ls.AdamOptimizer(0.01, epsilon=1e-4), tf.float16),
    "RMSProp in bfloat16": (lambda: ls.RMSPropOptimizer(0.01), tf.bfloat16),
}


@pytest.mark.parametrize(("make", "dtype", "scalar"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "function"])
def test_scalars_that_a_kernel_rounds_to_zero_are_refused(
    make: Any, dtype: tf.DType, scalar: str, traced: bool
) -> None:
    fine = tf.Variable([1.0], name="fine")
    w, count = tf.Variable([0.5], dtype=dtype, name="w"), tf.Variable(0)
    opt = make()

    def step() -> None:
        pairs = [(tf.ones([1]), fine), (tf.ones([1], dtype), w)]
        opt.apply_gradients(pairs, global_step=count)

    with pytest.raises(UnsupportedError, match=scalar):
        (tf.function(step, autograph=False) if traced else step)()
    assert opt.variables() == [] and int(count) == 0
    assert fine.numpy() == 1.0


@pytest.mark.parametrize(("make", "dtype"), ALLOWED.values(), ids=ALLOWED)
def test_what_the_dtype_can_hold_is_taken(make: Any, dtype: tf.DType) -> None:
    w, opt = tf.Variable([0.5], dtype=dtype), make()
    for _ in range(20):
        opt.apply_gradients([(tf.ones([1], dtype), w)])
    assert 0.0 < float(w[0]) < 0.5


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16], ids=str)
def test_the_remedy_trains(dtype: tf.DType) -> None:
    w = tf.Variable([0.5], dtype=dtype)
    opt = ls.MixedPrecisionOptimizerWrapper(ls.AdamOptimizer(0.01))
    for _ in range(5):
        opt.apply_gradients([(tf.cast(2 * w, tf.float32), w)])
    assert 0.4 < float(w[0]) < 0.5
