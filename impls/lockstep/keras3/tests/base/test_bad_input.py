"""Bad input is answered with a sentence before anything changes."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf

from lockstep.errors import UnsupportedError
from lockstep.keras3 import (
    AGNCustomGetter,
    AGNOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    clip_gradients_by_global_norm,
    optimize_loss,
)

ONE = tf.ones([2])
MISTAKES: dict[str, tuple[Any, type[Exception]]] = {
    "no pairs": (lambda o, w: o.apply_gradients([]), ValueError),
    "no gradient": (lambda o, w: o.apply_gradients([(None, w)]), ValueError),
    "no pair": (lambda o, w: o.apply_gradients([ONE]), TypeError),
    "order": (lambda o, w: o.apply_gradients([(w, ONE)]), TypeError),
    "shape": (lambda o, w: o.apply_gradients([(tf.ones([3]), w)]), ValueError),
    "dtype": (lambda o, w: o.apply([tf.ones([2], "float64")], [w]), TypeError),
    "count": (lambda o, w: o.apply([ONE, ONE], [w]), TypeError),
    "step": (lambda o, w: o.apply_gradients([(ONE, w)], 3), TypeError),
    "stranger": (lambda o, w: o.apply([ONE], [keras.Variable(ONE)]), ValueError),
    "loss": (lambda o, w: o.compute_gradients(ONE), RuntimeError),
    "gate": (lambda o, w: o.compute_gradients(lambda: ONE, [w], 7), ValueError),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_and_changes_nothing(mistake: str) -> None:
    call, error = MISTAKES[mistake]
    w = keras.Variable([1.0, 2.0])
    optimizer = MultitaskOptimizerWrapper(keras.optimizers.SGD(0.5))
    optimizer.build([w])
    with pytest.raises(error, match=r"expected .*, got .*; .*\."):
        call(optimizer, w)
    assert w.numpy().tolist() == [1.0, 2.0]
    assert int(optimizer.iterations) == 0


@pytest.mark.parametrize("given", [3, None, keras.optimizers.SGD, "sgd"])
def test_only_optimizers_can_be_wrapped(given: Any) -> None:
    with pytest.raises(TypeError, match=r"keras\.optimizers\.Optimizer"):
        MultitaskOptimizerWrapper(given)


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf"), "1"])
def test_a_norm_out_of_range_is_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match="a finite number > 0"):
        clip_gradients_by_global_norm([(ONE, "w")], limit)


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
