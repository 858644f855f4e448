"""What is wrong with a call is said before it has changed anything."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras
import pytest
import tensorflow as tf

from lockstep import errors
from lockstep.keras3 import (
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    NovoGrad,
    VariableClippingOptimizer,
)


def adam() -> Any:
    return keras.optimizers.Adam(0.125)


MAKERS: dict[str, Callable[[], Any]] = {
    "multitask": lambda: MultitaskOptimizerWrapper(adam()),
    "rows": lambda: VariableClippingOptimizer(adam(), {}, 1.0),
    "loss scale": lambda: MixedPrecisionLossScaleOptimizer(adam(), 8.0),
    "masters": lambda: MixedPrecisionOptimizerWrapper(adam(), 8.0),
}


@pytest.mark.parametrize("shape", [None, [2, 2]], ids=["unknown", "given"])
@pytest.mark.parametrize("maker", MAKERS)
def test_a_sparse_gradient_needs_no_dense_shape(maker: str, shape: Any) -> None:
    u, w = keras.Variable([1.0, 2.0]), keras.Variable([[1.0, 2.0], [3.0, 4.0]])
    dense_shape = None if shape is None else tf.constant(shape)
    sparse = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]), dense_shape)
    MAKERS[maker]().apply_gradients([(tf.ones([2]), u), (sparse, w)])
    assert w.numpy()[0].tolist() == [1.0, 2.0]
    assert w.numpy()[1].tolist() == pytest.approx([2.875, 3.875], rel=1e-5)


@pytest.mark.parametrize("indices", [[5], [-1], [0, 1]])
@pytest.mark.parametrize("maker", MAKERS)
def test_rows_that_are_none_are_refused_before_another_variable_moves(
    maker: str, indices: list[int]
) -> None:
    u, w = keras.Variable([1.0, 2.0]), keras.Variable([[1.0, 2.0], [3.0, 4.0]])
    sparse = tf.IndexedSlices(tf.ones([1, 2]), tf.constant(indices))
    with pytest.raises(ValueError, match="rows of") as told:
        MAKERS[maker]().apply_gradients([(tf.ones([2]), u), (sparse, w)])
    assert isinstance(told.value, errors.LockstepError)
    assert u.numpy().tolist() == [1.0, 2.0]


CALLS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "no loss": (
        lambda o, w: o.minimize(lambda: None, var_list=[w]),
        "loss: expected a 0-d tensor, got None",
    ),
    "a loss with an argument": (
        lambda o, w: o.minimize(lambda x: keras.ops.sum(w) * x, var_list=[w]),
        r"a callable without arguments, got one with \(x\)",
    ),
    "a name": (
        lambda o, w: o.minimize(lambda: keras.ops.sum(w), var_list=["w"]),
        "a list of variables, got 'w'",
    ),
    "a number": (
        lambda o, w: o.minimize(lambda: keras.ops.sum(w), var_list=3),
        "a list of variables, got 3",
    ),
    "a text": (
        lambda o, w: o.minimize(lambda: keras.ops.sum(w), var_list=[w], grad_loss="x"),
        "grad_loss: expected a number or a tensor, got 'x'",
    ),
    "to build nothing": (lambda o, w: o.build(None), "got None"),
    "to build a number": (lambda o, w: o.build([3]), "got 3"),
    "an empty configuration": (
        lambda o, w: MultitaskOptimizerWrapper.from_config({}),
        "expected 'opt', got none",
    ),
    "a negative norm": (
        lambda o, w: NovoGrad(clipnorm=-1),
        "clipnorm: expected a finite number > 0, got -1",
    ),
}


def test_the_callback_that_swaps_averages_sees_through_nested_wrappers() -> None:
    w = keras.Variable([4.0])
    sgd = keras.optimizers.SGD(1.0, use_ema=True, ema_momentum=0.5)
    optimizer = MultitaskOptimizerWrapper(MixedPrecisionLossScaleOptimizer(sgd, 8.0))
    for _ in range(2):
        optimizer.apply([tf.ones([1])], [w])
    callback = keras.callbacks.SwapEMAWeights()
    callback.set_model(SimpleNamespace(optimizer=optimizer))
    callback.on_test_begin()
    assert w.numpy().tolist() == [2.5]
    callback.on_test_end()
    assert w.numpy().tolist() == [2.0]
    without = MultitaskOptimizerWrapper(MultitaskOptimizerWrapper(adam()))
    callback.set_model(SimpleNamespace(optimizer=without))
    with pytest.raises(ValueError, match="use_ema"):
        callback.on_test_begin()
