"""What wrappers report and count: reports are never None and never old."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf

from lockstep import keras3 as ls
from lockstep.errors import NoGradientsError
from lockstep.interface import NO_EAGER_STEP, NO_GRADIENTS
from lockstep.keras3.wrapper import Wrapper
from lockstep.pipeline import layers_of

INF, ZERO, ONE = [float("inf"), 1.0], [0.0, 0.0], [1.0, 1.0]


def weight(name: str = "w") -> keras.Variable:
    return keras.Variable([1.0, 1.0], name=name)


def scaled(inner: Any = None) -> Any:
    inner = keras.optimizers.SGD(0.5) if inner is None else inner
    return ls.MixedPrecisionLossScaleOptimizer(inner, ls.DynamicLossScale(4.0, 2))


def masters(inner: Any = None) -> Any:
    inner = keras.optimizers.SGD(0.5) if inner is None else inner
    return ls.MixedPrecisionOptimizerWrapper(inner, "dynamic")


def rows(inner: Any = None) -> Any:
    inner = keras.optimizers.SGD(0.5) if inner is None else inner
    return ls.VariableClippingOptimizer(inner, {"w": [0]}, 9.0)


def worker(inner: Any) -> Any:
    getter = ls.AGNCustomGetter.from_config({"worker_device": "/cpu:0"})
    return ls.AGNOptimizer(inner, 1, getter, 2)


MAKE = {
    "multitask": lambda: ls.MultitaskOptimizerWrapper(keras.optimizers.SGD(0.5)),
    "scale": scaled,
    "masters": masters,
    "rows": rows,
    "worker": lambda: worker(keras.optimizers.SGD(0.5)),
    "stack": lambda: ls.MultitaskOptimizerWrapper(scaled(rows())),
}


def apply(optimizer: Any, w: Any, values: Any) -> None:
    optimizer.apply_gradients([(None if values is None else tf.constant(values), w)])


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MAKE)
def test_a_report_is_never_none_and_never_old(name: str) -> None:
    optimizer, w = MAKE[name](), weight()
    layers = [each for each in layers_of(optimizer) if isinstance(each, Wrapper)]
    assert [layer.last_step for layer in layers] == [NO_EAGER_STEP] * len(layers)
    apply(optimizer, w, ONE)
    assert all(layer.last_step.applied for layer in layers)
    with pytest.raises(NoGradientsError):
        apply(optimizer, w, None)
    assert [layer.last_step for layer in layers] == [NO_GRADIENTS] * len(layers)
    apply(optimizer, w, ONE)
    tf.function(lambda: optimizer.apply([tf.constant(ONE)], [w]))()
    assert [layer.last_step for layer in layers] == [NO_EAGER_STEP] * len(layers)
    assert type(layers[0].last_step) is type(MAKE[name]().last_step)


def test_layers_that_a_step_does_not_reach_report_that() -> None:
    inner = rows()
    middle = scaled(inner)
    optimizer, w = ls.MultitaskOptimizerWrapper(middle), weight()
    apply(optimizer, w, ONE)
    apply(optimizer, w, INF)
    assert inner.last_step == NO_GRADIENTS
    assert middle.last_step.nonfinite == ("w",)
    assert optimizer.last_step.skipped == ("w",)
    apply(optimizer, w, ZERO)
    assert optimizer.last_step.reason == "of 1 gradients 1 all zero"
    assert (middle.last_step, inner.last_step) == (NO_GRADIENTS, NO_GRADIENTS)
    assert int(middle.skipped_steps) == 1


@pytest.mark.parametrize("wrap", [ls.MultitaskOptimizerWrapper, rows])
def test_a_step_that_the_scale_inside_skips_is_not_reported_as_applied(
    wrap: Any,
) -> None:
    optimizer, w = wrap(scaled()), weight()
    apply(optimizer, w, INF)
    assert not optimizer.last_step.applied and w.numpy().tolist() == [1.0, 1.0]
    assert "skipped, not finite: w" in optimizer.last_step.reason
    assert optimizer.last_step.nonfinite == ("w",)


def test_reports_name_weights_not_masters() -> None:
    w = keras.Variable([1.0, 1.0], dtype="float16", name="w")
    optimizer = masters(rows(ls.MultitaskOptimizerWrapper(keras.optimizers.SGD(0.5))))
    for values in (ZERO, INF):
        apply(optimizer, w, tf.constant(values, tf.float16))
        assert optimizer.last_step.skipped == ("w",)
    assert optimizer.master(w).name == "w_master"


@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("make", [scaled, masters])
def test_skipped_steps_are_counted_in_all_and_in_a_row(make: Any, mode: str) -> None:
    optimizer, w = make(), weight()
    optimizer.build([w])

    def take(gradient: Any) -> None:
        optimizer.apply([gradient], [w])

    step = tf.function(take) if mode == "function" else take
    counts = []
    for values in (ONE, INF, INF, ONE, INF, ZERO):
        step(tf.constant(values))
        counts.append((int(optimizer.skipped_in_a_row), int(optimizer.skipped_steps)))
    assert counts == [(0, 0), (1, 1), (2, 2), (0, 2), (1, 3), (0, 3)]
