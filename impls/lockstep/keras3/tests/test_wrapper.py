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
from lockstep.tests.wrappers import Parts, alone

WRAPPERS: dict[str, Callable[[Any], Any]] = {
    name: lambda opt, layer=layer: layer(Parts(keras3, opt, {"w": [0]}))
    for name, layer in alone(keras3).items()
}
each_wrapper = pytest.mark.parametrize("name", WRAPPERS)


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


@pytest.mark.parametrize("name", ["dynamic", "masters-dynamic"])
def test_methods_of_keras_2_are_answered_with_todays(name: str) -> None:
    optimizer = WRAPPERS[name](keras.optimizers.SGD(0.5))
    with pytest.raises(AttributeError, match="scale_loss"):
        optimizer.get_scaled_loss(tf.ones([]))


@pytest.mark.parametrize("name", ["dynamic", "masters-dynamic"])
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


def model(name: str, dtype: str = "float16") -> keras.Model:
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


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.filterwarnings(NUMPY)
def test_a_model_saved_in_the_middle_goes_on_to_the_bit(
    name: str, tmp_path: Path
) -> None:
    net = model(name)
    net.fit(X, X[:, :2], batch_size=2, verbose=0, shuffle=False)
    net.save(tmp_path / "net.keras")
    again = keras.models.load_model(tmp_path / "net.keras")
    assert type(again.optimizer) is type(net.optimizer)
    assert again.optimizer.get_config() == net.optimizer.get_config()
    assert state(again) == state(net)
    for each in (net, again):
        each.fit(X, X[:, :2], batch_size=2, verbose=0, shuffle=False)
    assert state(again) == state(net)
