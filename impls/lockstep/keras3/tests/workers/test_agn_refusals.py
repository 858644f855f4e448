"""What AGN cannot take in Keras, and the sentence that says so."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import keras3
from lockstep.keras3 import AGNCustomGetter, AGNOptimizer
from lockstep.keras3.tests.workers.worker_pairs import single


def refused(**changes: Any) -> Any:
    given = {
        "optimizer": keras.optimizers.SGD(0.5),
        "num_worker": 1,
        "custom_getter": AGNCustomGetter("/cpu:0"),
        **changes,
    }
    return lambda: AGNOptimizer(**given)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (refused(optimizer=3), TypeError),
        (refused(custom_getter=None), TypeError),
        (refused(num_worker=0), ValueError),
        (refused(communication_period=0), ValueError),
        (refused(commit="sum"), ValueError),
        (
            refused(optimizer=keras.optimizers.SGD(0.5, gradient_accumulation_steps=2)),
            ValueError,
        ),
        (
            refused(
                optimizer=keras3.MixedPrecisionLossScaleOptimizer(
                    keras.optimizers.SGD(0.5), 8.0
                )
            ),
            ValueError,
        ),
        (
            refused(
                optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5))
            ),
            ValueError,
        ),
        (
            refused(
                optimizer=keras3.MixedPrecisionOptimizerWrapper(
                    keras.optimizers.SGD(0.5), 8.0
                )
            ),
            ValueError,
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(make: Any, error: Any) -> None:
    with pytest.raises(error):
        make()


def test_masters_around_are_refused() -> None:
    variable, worker = single()
    with pytest.raises(ValueError):
        keras3.MixedPrecisionOptimizerWrapper(worker, 8.0)
    given = (lambda: keras.ops.sum(variable), worker, None, lambda step: 0.5)
    with pytest.raises(ValueError):
        keras3.optimize_loss(*given, [variable], dtype="mixed")


def test_a_variable_that_the_getter_was_not_given_is_refused() -> None:
    variable, worker = single()
    stranger = keras.Variable([1.0, 1.0], name="stranger")
    for given in ([stranger], [variable, stranger]):
        with pytest.raises(KeyError):
            worker.apply([tf.ones([2])] * len(given), given)
    assert variable.numpy().tolist() == [1.0, 2.0]
    assert int(worker.local_step) == 0


def test_workers_with_other_variables_are_refused() -> None:
    _, first = single()
    getter = AGNCustomGetter("/cpu:0", first.custom_getter.center)
    with pytest.raises(ValueError):
        getter([keras.Variable([1.0, 2.0, 3.0], name="w")])


def test_under_parameter_servers_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers would train one copy of the weights."""
    variable, worker = single()
    kind = tf.distribute.ParameterServerStrategy
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: kind.__new__(kind))
    with pytest.raises(ValueError):
        single()
    with pytest.raises(ValueError):
        worker.apply([np.ones(2, np.float32)], [variable])
    assert variable.numpy().tolist() == [1.0, 2.0]
