"""Float32 masters inside and around other wrappers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import errors
from lockstep.tf import (
    AdamOptimizer,
    DynamicLossScale,
    GradientDescentOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.tf.tests.masters.models import HALF, START, STEPS, Training, masters

Hosts = Callable[..., Any]


@pytest.mark.parametrize(
    "wrapped",
    [MixedPrecisionOptimizerWrapper, MixedPrecisionLossScaleOptimizer],
)
def test_a_multitask_wrapper_around_does_not_claim_a_skipped_step(wrapped: Any) -> None:
    w, v = tf.Variable([1.0], name="w"), tf.Variable([1.0], name="v")
    opt = MultitaskOptimizerWrapper(wrapped(GradientDescentOptimizer(0.5), 2.0))
    opt.apply_gradients([(tf.constant([np.inf]), w), (tf.constant([0.0]), v)])
    assert not opt.last_step.applied
    assert opt.last_step.skipped == ("w", "v")
    assert opt.last_step.nonfinite == ("w",)
    assert opt.last_step.reason.startswith("of 2 gradients 1 all zero; skipped")
    opt.apply_gradients([(tf.constant([1.0]), w), (tf.constant([0.0]), v)])
    assert opt.last_step == (True, "of 2 gradients 1 all zero", ("v",))


def test_row_clipping_around_masters_is_refused() -> None:
    half = tf.Variable(START, dtype=tf.float16, name="half")
    wide = tf.Variable(START)
    inner = MultitaskOptimizerWrapper(masters(8.0)(GradientDescentOptimizer(1.0)))
    with pytest.raises(errors.UnsupportedError, match="'half' itself"):
        VariableClippingOptimizer(inner, {half.ref(): [1]}, 1.0)
    VariableClippingOptimizer(inner, {wide.ref(): [1]}, 1.0)


COMPOSED: dict[str, Callable[[Any], Any]] = {
    "inside multitask": lambda opt: MultitaskOptimizerWrapper(masters(8.0)(opt)),
    "around multitask": lambda opt: masters(8.0)(MultitaskOptimizerWrapper(opt)),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("order", COMPOSED)
def test_with_a_multitask_wrapper_an_all_zero_gradient_moves_nothing(
    new_driver: Hosts, order: str
) -> None:
    run = Training(
        new_driver(), COMPOSED[order], START.astype(HALF), START.astype(HALF)
    )
    run.step([STEPS[0].astype(HALF), STEPS[1].astype(HALF)])
    model, master = run.driver.read(run.variables[0]), run.masters()[0]
    other = run.masters()[1]
    run.step([np.zeros((3, 2), HALF), STEPS[2].astype(HALF)])
    assert run.driver.read(run.variables[0]).tobytes() == model.tobytes()
    assert run.masters()[0].tobytes() == master.tobytes()
    assert run.masters()[1].tobytes() != other.tobytes()


def test_row_clipping_inside_limits_master_and_model(new_driver: Hosts) -> None:
    driver = new_driver()
    w = driver.variable("w", np.array([[3, 4], [0.25, 0.5]], HALF))
    base = driver.optimizer("GradientDescent", {"learning_rate": 1.0}, [w])
    inner = VariableClippingOptimizer(base, {driver.key(w): [1]}, 2.5)
    wrapper = MixedPrecisionOptimizerWrapper(inner, 8.0)

    def train(given: list[Any]) -> Any:
        loss = driver.linear_loss([w], given)
        return wrapper.apply_gradients(wrapper.compute_gradients(loss, [w]))

    driver.compile(train)([np.zeros((2, 2), HALF)])
    assert driver.read(wrapper.master(w)).tolist() == [[1.5, 2], [0.25, 0.5]]
    assert driver.read(w).tolist() == [[1.5, 2], [0.25, 0.5]]


@pytest.mark.parametrize("between", [False, True], ids=["at once", "at any depth"])
def test_a_loss_is_not_scaled_twice(between: bool) -> None:
    inner = MixedPrecisionOptimizerWrapper(AdamOptimizer(), 8.0)
    if between:
        inner = MultitaskOptimizerWrapper(inner)
    with pytest.raises(ValueError, match="let one of the two scale"):
        MixedPrecisionLossScaleOptimizer(inner, DynamicLossScale(64.0, 100))
