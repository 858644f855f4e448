"""Laws that every wrapper of Keras keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import keras3

WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "multitask": keras3.MultitaskOptimizerWrapper,
    "rows": lambda opt: keras3.VariableClippingOptimizer(opt, {"w": [0]}, 64.0),
    "scale": lambda opt: keras3.MixedPrecisionLossScaleOptimizer(opt, 8.0),
    "masters": lambda opt: keras3.MixedPrecisionOptimizerWrapper(opt, "dynamic"),
}
each_wrapper = pytest.mark.parametrize("name", WRAPPERS)
each_mode = pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])


class TwoSteps(keras.optimizers.SGD):
    """An optimizer with a second method that updates variables."""

    def first_step(self) -> None:
        """Move the weights, as SAM does."""


@each_wrapper
def test_methods_that_would_update_past_the_wrapper_are_not_forwarded(
    name: str,
) -> None:
    optimizer = WRAPPERS[name](TwoSteps(0.5, momentum=0.25))
    assert optimizer.momentum == 0.25 and optimizer.nesterov is False
    assert not hasattr(optimizer, "first_step")
    with pytest.raises(AttributeError, match=r"inner_optimizer\.first_step"):
        optimizer.first_step()
    with pytest.raises(AttributeError, match=type(optimizer).__name__):
        optimizer.momenta  # noqa: B018


@pytest.mark.parametrize("name", ["scale", "masters"])
def test_methods_of_keras_2_are_answered_with_todays(name: str) -> None:
    optimizer = WRAPPERS[name](keras.optimizers.SGD(0.5))
    with pytest.raises(AttributeError, match="scale_loss"):
        optimizer.get_scaled_loss(tf.ones([]))


@pytest.mark.parametrize("name", ["scale", "masters"])
@pytest.mark.filterwarnings("error")
def test_a_loss_that_was_never_scaled_is_warned_of_once(name: str) -> None:
    w = keras.Variable([1.0], name="w")
    optimizer = WRAPPERS[name](keras.optimizers.SGD(0.5))
    optimizer.apply([tf.zeros([1])], [w])
    with pytest.warns(UserWarning, match="was never asked for"):
        optimizer.apply([tf.ones([1])], [w])
    optimizer.apply([tf.ones([1])], [w])
    quiet = WRAPPERS[name](keras.optimizers.SGD(0.5))
    quiet.minimize(lambda: keras.ops.sum(w * w), var_list=[w])
    quiet.apply([tf.ones([1])], [w])


def test_a_report_counts_gradients_that_are_not_finite() -> None:
    weights = [keras.Variable([1.0, 2.0], name=name) for name in "abc"]
    optimizer = keras3.MultitaskOptimizerWrapper(keras.optimizers.SGD(0.5))
    optimizer.apply([[0.0, 0.0], [1.0, np.nan], [np.inf, -np.inf]], weights)
    reason = "of 3 gradients 1 all zero, 2 not finite"
    assert optimizer.last_step == (True, reason, ("a",))
    largest = np.float32(3e38)  # Its sum overflows.
    optimizer.apply([[largest, largest]], weights[:1])
    assert optimizer.last_step.reason == "every gradient had a nonzero element"


def trained(wrap: Callable[[Any], Any], order: int, graph: bool) -> list[np.ndarray]:
    """Return the weights and the slots after three steps, by name."""
    names = ["w", "v"][::order]
    weights = [keras.Variable([0.5, -1.0], name=name) for name in names]
    optimizer = wrap(keras.optimizers.Adam(0.125))
    optimizer.build(weights)

    def step(factor: Any) -> None:
        def loss() -> Any:
            terms = [keras.ops.sum(weight * weight) for weight in weights]
            return factor * keras.ops.sum(keras.ops.stack(terms[::order]))

        optimizer.minimize(loss, var_list=weights)

    step = tf.function(step, autograph=False) if graph else step
    for factor in (1.0, 2.0, 0.5):
        step(tf.constant(factor))
    state = [s for w in weights[::order] for s in (w, *optimizer._slots.of(w).values())]
    return [np.asarray(value) for value in state]


@each_wrapper
@each_mode
def test_another_order_and_a_wrapper_around_change_no_bit(
    name: str, graph: bool
) -> None:
    expected = trained(WRAPPERS[name], 1, graph)
    outside = keras3.MultitaskOptimizerWrapper
    for wrap, order in (
        (WRAPPERS[name], -1),
        (lambda opt: outside(WRAPPERS[name](opt)), 1),
    ):
        for one, other in zip(expected, trained(wrap, order, graph), strict=True):
            assert one.tobytes() == other.tobytes()
