"""A traced step runs Lockstep's code as it is written: AutoGraph converts none of it.

A conversion would take time at each trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.autograph.impl import api

from lockstep import tf as ls

Scaled, Masters = ls.MixedPrecisionLossScaleOptimizer, ls.MixedPrecisionOptimizerWrapper


@pytest.fixture
def converted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the modules of the functions that AutoGraph converts."""
    modules: list[str] = []
    convert: Callable[..., Any] = api._convert_actual

    def note(entity: Any, context: Any) -> Any:
        modules.append(entity.__module__)
        return convert(entity, context)

    monkeypatch.setattr(api, "_convert_actual", note)
    return modules


def sgd() -> Any:
    return ls.GradientDescentOptimizer(0.5)


def agn(variable: tf.Variable) -> Any:
    getter = ls.AGNCustomGetter("/cpu:0")
    getter([variable])
    return ls.AGNOptimizer(sgd(), 1, getter, 1)


OPTIMIZERS: dict[str, Callable[[tf.Variable], Any]] = {
    "NovoGrad": lambda w: ls.NovoGrad(0.5),
    "multitask": lambda w: ls.MultitaskOptimizerWrapper(sgd()),
    "rows": lambda w: ls.VariableClippingOptimizer(sgd(), {}, 1.0),
    "agn": agn,
    "loss scale": lambda w: Scaled(sgd(), "dynamic"),
    "masters": lambda w: Masters(sgd(), ls.AutomaticLossScaler("Backoff")),
}


def assert_only_the_step_is(converted: list[str]) -> None:
    """Assert that the user's step was converted, and nothing of Lockstep."""
    assert __name__ in converted
    assert {name for name in converted if name.startswith("lockstep.")} <= {__name__}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_the_step_of_an_optimizer_is_not_converted(
    make: Callable[[tf.Variable], Any], converted: list[str]
) -> None:
    w = tf.Variable([1.0])
    opt = make(w)

    def step() -> None:
        pairs = opt.compute_gradients(lambda: tf.reduce_sum(w * w), [w])
        opt.apply_gradients(pairs)

    tf.function(step)()
    assert_only_the_step_is(converted)


@pytest.mark.parametrize("make", [Scaled, Masters])
def test_scaling_by_hand_is_not_converted(
    make: Callable[..., Any], converted: list[str]
) -> None:
    w = tf.Variable([1.0])
    opt = make(sgd(), 8.0)

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = opt.scale_loss(tf.reduce_sum(w * w))
        gradients = opt.unscale_gradients(tape.gradient(loss, [w]))
        opt.apply_gradients(zip(gradients, [w], strict=True))

    tf.function(step)()
    assert_only_the_step_is(converted)
