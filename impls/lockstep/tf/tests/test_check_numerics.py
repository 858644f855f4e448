"""Correct steps run under tf.debugging.enable_check_numerics: nothing is infinite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

from lockstep.tf import (
    DynamicLossScale,
    GradientDescentOptimizer,
    MixedPrecisionLossScaleOptimizer,
    NovoGrad,
    VariableClippingOptimizer,
    clip_by_global_norm,
    clip_gradients_by_global_norm,
    lr_policies,
    post_process_gradients,
)

MODES = {"eager": lambda step: step, "function": tf.function}


@pytest.fixture
def checked() -> Iterator[None]:
    tf.debugging.enable_check_numerics()
    try:
        yield
    finally:
        tf.debugging.disable_check_numerics()


def sgd() -> Any:
    return GradientDescentOptimizer(0.5)


STEPS: dict[str, Callable[[tf.Variable], Any]] = {
    "rows": lambda w: VariableClippingOptimizer(sgd(), {w.ref(): [1]}, 2.5),
    "NovoGrad": lambda w: NovoGrad(0.5),
    "scale": lambda w: MixedPrecisionLossScaleOptimizer(
        sgd(), DynamicLossScale(8.0, 1), clip_norm=2.0
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("gradient", [0.0, 1.0])
def test_steps_compute_no_infinity(
    checked: None, gradient: float, name: str, mode: str
) -> None:
    w = tf.Variable([[3.0, 4.0], [0.0, 0.0]])
    optimizer = STEPS[name](w)

    def step() -> None:
        optimizer.apply_gradients([(tf.fill([2, 2], gradient), w)])

    taken = MODES[mode](step)
    for _ in range(2):
        taken()
    assert tf.reduce_all(tf.math.is_finite(w))
    if name == "rows" and gradient == 0:
        assert w.numpy().tolist() == [[1.5, 2.0], [0.0, 0.0]]


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("gradient", [[0.0, 0.0], [3.0, 4.0]])
def test_clipping_computes_no_infinity(
    checked: None, gradient: list[float], mode: str
) -> None:
    expected = [value / 2 for value in gradient]

    pair = tf.constant(gradient), tf.Variable([0.0, 0.0])

    def clipped() -> list[Any]:
        pairs, _ = clip_gradients_by_global_norm([pair], 2.5)
        return [pairs[0][0], clip_by_global_norm([pair[0]], 2.5)[0][0]]

    results = MODES[mode](clipped)()
    assert [result.numpy().tolist() for result in results] == [expected, expected]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("larc_mode", ["clip", "scale"])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_larc_computes_no_infinity(
    checked: None, rate: float, larc_mode: str, mode: str
) -> None:
    zero, weight = tf.Variable([0.0, 0.0]), tf.Variable([3.0, 4.0])
    options = {"larc_eta": 0.5, "larc_mode": larc_mode, "epsilon": 0.0}

    def processed() -> list[Any]:
        gradients = (tf.zeros([2]), weight), (tf.ones([2]), zero)
        pairs = post_process_gradients(gradients, [], rate, None, options)
        return [gradient for gradient, _ in pairs]

    results = MODES[mode](processed)()
    assert [result.numpy().tolist() for result in results] == [[0.0, 0.0], [1.0, 1.0]]


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["poly_decay", "cosine_decay"])
def test_a_rate_without_a_warm_up_computes_no_infinity(
    checked: None, name: str, mode: str
) -> None:
    policy = getattr(lr_policies, name)
    rate = MODES[mode](lambda: policy(tf.constant(0), 0.5, decay_steps=10))()
    assert rate.numpy() == 0.5
