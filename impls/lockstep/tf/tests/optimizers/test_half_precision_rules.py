"""Rules on half-precision variables, and Ftrl's NaN: nothing goes wrong in silence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import tf as ls
from lockstep.errors import UnsupportedError
from lockstep.tf import strict

v1 = tf.compat.v1
REFUSED: dict[str, tuple[Any, tf.DType, str]] = {
    "Adam, 1 - beta2": (
        lambda names: names.AdamOptimizer(0.01),
        tf.bfloat16,
        "1 - beta2 = 0.001",
    ),
    "Adam, 1 - beta1": (
        lambda names: names.AdamOptimizer(0.01, 0.999, 0.99),
        tf.bfloat16,
        "1 - beta1 = 0.001",
    ),
    "Adam, epsilon": (
        lambda names: names.AdamOptimizer(0.01),
        tf.float16,
        "epsilon = 1e-08",
    ),
    "AdamW, epsilon": (
        lambda names: names.AdamWOptimizer(0.1, 0.01),
        tf.float16,
        "epsilon = 1e-08",
    ),
    "RMSProp, epsilon": (
        lambda names: names.RMSPropOptimizer(0.01),
        tf.float16,
        "epsilon = 1e-10",
    ),
    "RMSProp, 1 - decay": (
        lambda names: names.RMSPropOptimizer(0.01, 0.999),
        tf.bfloat16,
        "1 - decay = 0.001",
    ),
}
ALLOWED: dict[str, tuple[Any, tf.DType]] = {
    "Adam in bfloat16": (lambda: ls.AdamOptimizer(0.01, beta2=0.99), tf.bfloat16),
    "Adam in float16": (lambda: ls.AdamOptimizer(0.01, epsilon=1e-4), tf.float16),
    "RMSProp in bfloat16": (lambda: ls.RMSPropOptimizer(0.01), tf.bfloat16),
    "Adam in float32": (lambda: ls.AdamOptimizer(0.01), tf.float32),
}


@pytest.mark.parametrize(("make", "dtype", "scalar"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "function"])
def test_scalars_that_a_kernel_rounds_to_zero_are_refused(
    make: Any, dtype: tf.DType, scalar: str, traced: bool
) -> None:
    fine = tf.Variable([1.0], name="fine")
    w, count = tf.Variable([0.5], dtype=dtype, name="w"), tf.Variable(0)
    opt = make(ls)

    def step() -> None:
        pairs = [(tf.ones([1]), fine), (tf.ones([1], dtype), w)]
        opt.apply_gradients(pairs, global_step=count)

    with pytest.raises(UnsupportedError) as caught:
        (tf.function(step, autograph=False) if traced else step)()
    sentence = str(caught.value)
    assert f"can hold {scalar} for 'w', got {dtype.name}" in sentence
    assert "MixedPrecisionOptimizerWrapper" in sentence
    assert opt.variables() == [] and int(count) == 0
    assert fine.numpy() == 1.0


@pytest.mark.parametrize(("make", "dtype", "scalar"), REFUSED.values(), ids=REFUSED)
def test_strict_rounds_as_the_original(make: Any, dtype: tf.DType, scalar: str) -> None:
    w = tf.Variable([0.5], dtype=dtype)
    make(strict).apply_gradients([(tf.ones([1], dtype), w)])


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


def test_optimize_loss_refuses_them_too() -> None:
    w = tf.Variable([0.5], dtype=tf.bfloat16)

    def step(**options: Any) -> Any:
        loss = lambda: tf.reduce_sum(w)  # noqa: E731
        return ls.optimize_loss(loss, "Adam", {}, lambda s: 0.01, [w], **options)

    with pytest.raises(UnsupportedError, match="1 - beta2"):
        step()()
    assert float(w[0]) == 0.5
    step(strict=True)()
    step(dtype="mixed")()


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16], ids=str)
def test_novograd_computes_in_float32_and_rounds_once(dtype: tf.DType) -> None:
    arguments = {"beta1": 0.999, "beta2": 0.999, "weight_decay": 0.01}
    start, gradient = [0.5, -1.0], [2.0, 3.0]
    half = tf.Variable(tf.constant(start, dtype))
    wide = tf.Variable(start)
    opt, other = (ls.NovoGrad(0.001, **arguments) for _ in range(2))
    for _ in range(3):
        momentum = other.get_slot(wide, "momentum")
        opt.apply_gradients([(tf.constant(gradient, dtype), half)])
        other.apply_gradients([(tf.constant(gradient), wide)])
        # Rounded where the other optimizer would go on in float32.
        wide.assign(tf.cast(tf.cast(wide, dtype), tf.float32))
        momentum = other.get_slot(wide, "momentum")
        momentum.assign(tf.cast(tf.cast(momentum, dtype), tf.float32))
        assert (tf.cast(half, tf.float32).numpy() == wide.numpy()).all()
    slot = opt.get_slot(half, "momentum")
    assert (tf.cast(slot, tf.float32).numpy() == momentum.numpy()).all()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_ftrl_keeps_a_nan_visible(bad: float, sparse: bool) -> None:
    w = tf.Variable([[1.0], [1.0]])
    opt = ls.FtrlOptimizer(0.25)
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
        step = ls.FtrlOptimizer(0.25).apply_gradients([(gradient, w) for w in weights])
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(step, {gradient: [np.nan] * 3})
        assert np.isnan(session.run(weights)).all()


def test_strict_ftrl_turns_a_dense_nan_into_zero() -> None:
    w = tf.Variable([1.0, 1.0])
    strict.FtrlOptimizer(0.25).apply_gradients([(tf.constant([np.nan, 1.0]), w)])
    assert w.numpy()[0] == 0.0
