"""Laws that every wrapper of Keras keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
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


@each_wrapper
def test_a_graph_changes_no_bit(name: str) -> None:
    both = [trained(WRAPPERS[name], 1, graph) for graph in (False, True)]
    for one, other in zip(*both, strict=True):
        # Graphs fold constants of Adam's rate; the rules themselves are the same.
        np.testing.assert_allclose(one, other, rtol=2**-22)


def agn(opt: Any) -> Any:
    """Return a worker whose getter takes the variables of any model."""
    getter = keras3.AGNCustomGetter.from_config({"worker_device": "/cpu:0"})
    return keras3.AGNOptimizer(opt, 1, getter, communication_period=2)


SAVED: dict[str, Callable[[Any], Any]] = {
    **WRAPPERS,
    "rows": lambda opt: keras3.VariableClippingOptimizer(opt, {"net/w/kernel": [0]}, 1),
    "LogMax": lambda opt: keras3.MixedPrecisionOptimizerWrapper(
        opt, keras3.AutomaticLossScaler("LogMax")
    ),
    "agn": agn,
    "nest": lambda opt: keras3.MultitaskOptimizerWrapper(
        keras3.MixedPrecisionLossScaleOptimizer(opt, "dynamic", clip_norm=1.0)
    ),
    "novograd": lambda opt: keras3.NovoGrad(0.125, weight_decay=0.25),
}
X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
NUMPY = "ignore:__array__ implementation doesn't accept:DeprecationWarning"


def model(name: str, dtype: str = "float32") -> keras.Model:
    """Return a compiled model of two layers."""
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(2, name=n, dtype=dtype) for n in ("w", "v")]
    net = keras.Sequential([keras.layers.Input([3]), *layers], name="net")
    optimizer = SAVED[name](keras.optimizers.Adam(0.125))
    net.compile(optimizer, "mse", jit_compile=False, auto_scale_loss=False)
    return net


def state(net: keras.Model) -> list[bytes]:
    """Return the bits of weights and of the optimizer's state."""
    variables = [*net.trainable_variables, *net.optimizer.variables]
    return [np.asarray(variable.numpy()).tobytes() for variable in variables]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", SAVED)
@pytest.mark.filterwarnings(NUMPY)
def test_a_model_saved_in_the_middle_goes_on_to_the_bit(
    name: str, dtype: str, tmp_path: Path
) -> None:
    net = model(name, dtype)
    net.fit(X, X[:, :2], batch_size=2, verbose=0, shuffle=False)
    net.save(tmp_path / "net.keras")
    again = keras.models.load_model(tmp_path / "net.keras")
    assert type(again.optimizer) is type(net.optimizer)
    assert again.optimizer.get_config() == net.optimizer.get_config()
    assert state(again) == state(net)
    for each in (net, again):
        each.fit(X, X[:, :2], batch_size=2, verbose=0, shuffle=False)
    assert state(again) == state(net)


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.filterwarnings(NUMPY)
def test_a_checkpoint_of_tensorflow_in_the_middle_changes_no_bit(
    name: str, tmp_path: Path
) -> None:
    net, again = model(name, "float16"), model(name, "float16")
    net.fit(X, X[:, :2], batch_size=2, verbose=0, shuffle=False)
    path = tf.train.Checkpoint(model=net).save(str(tmp_path / "net"))
    again.optimizer.build(again.trainable_variables)
    tf.train.Checkpoint(model=again).restore(path).assert_existing_objects_matched()
    for each in (net, again):
        each.fit(X, X[:, :2], batch_size=2, verbose=0, shuffle=False)
    assert state(again) == state(net)
