"""What AGN cannot take in TensorFlow, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

from lockstep import tf as lockstep_tf
from lockstep.tf import (
    AGNCustomGetter,
    AGNOptimizer,
    GradientDescentOptimizer,
    MixedPrecisionLossScaleOptimizer,
)
from lockstep.tf.tests.workers.worker_pairs import bits, single

v1 = tf.compat.v1
WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a Keras optimizer": (
        lambda: AGNOptimizer(keras.optimizers.SGD(), 1, AGNCustomGetter("/cpu:0")),
        TypeError,
        "v1 counterpart",
    ),
    "no getter": (
        lambda: AGNOptimizer(GradientDescentOptimizer(0.1), 1, None),
        TypeError,
        "AGNCustomGetter",
    ),
    "a loss scale inside": (
        lambda: AGNOptimizer(
            MixedPrecisionLossScaleOptimizer(GradientDescentOptimizer(0.1), 2.0),
            1,
            AGNCustomGetter("/cpu:0"),
        ),
        ValueError,
        "the loss scale around",
    ),
    "a period of 0": (
        lambda: AGNOptimizer(
            GradientDescentOptimizer(0.1), 1, AGNCustomGetter("/cpu:0"), 0
        ),
        ValueError,
        "an integer >= 1, got 0",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_one_sentence(name: str) -> None:
    make, error, told = WRONG[name]
    with pytest.raises(error, match=told):
        make()


def test_masters_are_refused_inside_and_around() -> None:
    variable, worker = single()
    masters = lockstep_tf.MixedPrecisionOptimizerWrapper(
        GradientDescentOptimizer(0.5), 8.0
    )
    with pytest.raises(ValueError, match="got MixedPrecisionOptimizerWrapper;"):
        AGNOptimizer(masters, 1, worker.custom_getter)
    around = "got AGNOptimizer; AGNOptimizer shares"
    with pytest.raises(ValueError, match=around):
        lockstep_tf.MixedPrecisionOptimizerWrapper(worker, 8.0)
    given = (lambda: tf.reduce_sum(variable), worker, None, lambda step: 0.5)
    with pytest.raises(ValueError, match=around):
        lockstep_tf.optimize_loss(*given, [variable], dtype="mixed")


def test_nothing_has_changed_when_a_step_is_refused() -> None:
    variable, worker = single()
    before = bits([variable, *worker.variables()])
    pair = (tf.ones([2]), variable)
    for given, options, error in [
        ([pair, (tf.ones([1]), tf.Variable([1.0]))], {}, KeyError),
        ([pair], {"global_step": tf.constant(0)}, TypeError),
        ([(tf.ones([3]), variable)], {}, ValueError),
    ]:
        with pytest.raises(error):
            worker.apply_gradients(given, **options)
    assert bits([variable, *worker.variables()]) == before


def test_variables_in_a_graph_are_made_by_the_getter() -> None:
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match=r"custom_getter of a tf\.compat"):
            AGNCustomGetter("/cpu:0")([v1.Variable([1.0])])


def test_shared_weights_have_one_shape() -> None:
    getter = AGNCustomGetter("/cpu:0")
    getter([tf.Variable([1.0], name="w")])
    second = AGNCustomGetter("/cpu:0", center=getter.center)
    with pytest.raises(ValueError, match="as the shared one"):
        second([tf.Variable([1.0, 2.0], name="w")])


def test_under_parameter_servers_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers would train one copy of the weights."""
    variable, worker = single()
    kind = tf.distribute.ParameterServerStrategy
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: kind.__new__(kind))
    told = "of the worker's own, got a ParameterServerStrategy"
    with pytest.raises(ValueError, match=told):
        single()
    with pytest.raises(ValueError, match=told):
        worker.apply_gradients([(tf.ones([2]), variable)])
    assert variable.numpy().tolist() == [1.0, -2.0]
