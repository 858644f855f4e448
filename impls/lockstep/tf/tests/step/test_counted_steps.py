"""What a schedule counts: steps that were applied, or calls."""

from __future__ import annotations

import pytest
import tensorflow as tf

from lockstep.tf import (
    GradientDescentOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    lr_policies,
)

WRAPPERS = {
    "scaled": MixedPrecisionLossScaleOptimizer,
    "masters": MixedPrecisionOptimizerWrapper,
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("follows", ["applied steps", "calls"])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_schedule_follows_applied_steps_or_calls_as_the_user_chooses(
    wrapper: str, follows: str, compiled: bool
) -> None:
    weight, counter = tf.Variable([0.0]), tf.Variable(0, dtype=tf.int64)

    def rate() -> tf.Tensor:
        return lr_policies.poly_decay(counter, 0.5, 8)

    optimizer = WRAPPERS[wrapper](GradientDescentOptimizer(rate), 8.0)

    def step(gradient: tf.Tensor) -> None:
        if follows == "applied steps":
            optimizer.apply_gradients([(gradient, weight)], global_step=counter)
        else:
            optimizer.apply_gradients([(gradient, weight)])
            counter.assign_add(1)

    step = tf.function(step, autograph=False) if compiled else step
    for gradient in (1.0, float("inf"), float("nan"), 1.0):
        step(tf.constant([gradient]))
    done = {"applied steps": (0, 1), "calls": (0, 3)}[follows]
    assert counter == done[-1] + 1
    expected = -sum(0.5 * (1 - k / 8) for k in done)
    assert weight.numpy().tolist() == [expected]
