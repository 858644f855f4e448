"""Bad input is answered with a sentence before anything changes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras
import pytest
import tensorflow as tf

from lockstep import errors
from lockstep.errors import UnsupportedError
from lockstep.keras3 import (
    AGNCustomGetter,
    AGNOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    optimize_loss,
)

ONE = tf.ones([2])


@pytest.mark.parametrize("count", [1, 2])
def test_a_wrong_count_or_a_stranger_is_refused_before_anything_changes(
    count: int,
) -> None:
    w = keras.Variable([1.0, 2.0])
    optimizer = MultitaskOptimizerWrapper(keras.optimizers.SGD(0.5))
    optimizer.build([w])
    with pytest.raises(errors.LockstepError):
        optimizer.apply([ONE] * count, [keras.Variable(ONE) if count == 1 else w])
    assert w.numpy().tolist() == [1.0, 2.0] and int(optimizer.iterations) == 0


def several(inner: Any) -> Any:
    """Return Keras' optimizer that updates the variable ``v`` with ``inner``."""
    both = keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.5), {"v": inner})
    return keras.optimizers.MultiOptimizer(both)


USES: dict[str, Any] = {
    "multitask": lambda o, w: MultitaskOptimizerWrapper(o),
    "nested": lambda o, w: MultitaskOptimizerWrapper(
        MixedPrecisionLossScaleOptimizer(o, 8.0)
    ),
    "masters": lambda o, w: MixedPrecisionOptimizerWrapper(o, 8.0).build([w]),
    "worker": lambda o, w: AGNOptimizer(o, 1, AGNCustomGetter("/cpu:0")),
    "optimize_loss": lambda o, w: optimize_loss(lambda: ONE, o, None, 0.5, [w]),
}


@pytest.mark.parametrize("use", USES)
def test_an_optimizer_of_several_is_refused_where_slots_or_rates_are_needed(
    use: str,
) -> None:
    v = keras.Variable(ONE, dtype="bfloat16", name="v")
    optimizer = several(keras.optimizers.Adam(0.5))
    with pytest.raises(UnsupportedError, match=r"expected .*, got MultiOpt.*; .*\."):
        USES[use](optimizer, v)
    assert not optimizer.built


def test_a_wrapper_inside_an_optimizer_of_several_skips_zeros() -> None:
    v, w = keras.Variable(ONE, name="v"), keras.Variable(ONE, name="w")
    inner = MultitaskOptimizerWrapper(keras.optimizers.SGD(0.5, momentum=0.5))
    optimizer = MixedPrecisionLossScaleOptimizer(several(inner), 8.0)
    for gradient in (ONE, tf.zeros([2])):
        optimizer.apply([gradient, ONE], [v, w])
    assert v.numpy().tolist() == [0.5, 0.5] and w.numpy().tolist() == [0.0, 0.0]
    assert inner.get_slot(v, "momentum").numpy().tolist() == [-0.5, -0.5]


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
