"""LARC, clipping and penalties of Keras variables."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.keras3 import (
    get_regularization_loss,
    post_process_gradients,
    reduce_gradients,
)
from lockstep.reference.post_process import SummaryRecord

LARC = {"larc_eta": 0.01}


def pair(gradient: Any = (60.0, 80.0)) -> tuple[Any, keras.Variable]:
    return tf.constant(gradient), keras.Variable([3.0, 4.0], name="kernel")


def test_a_custom_step_trains_through_larc_in_a_function() -> None:
    gradient, kernel = pair()
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([kernel])

    @tf.function
    def step() -> None:
        pairs = post_process_gradients(
            [(gradient, kernel)], [], optimizer.learning_rate, None, LARC
        )
        optimizer.apply_gradients(pairs)

    step()
    # An update is at most 1 % of the weight, whatever its gradient is.
    np.testing.assert_allclose(kernel.numpy(), [2.97, 3.96], rtol=1e-6)


def test_tags_hold_the_path_and_absent_gradients_stay_absent() -> None:
    record, (gradient, kernel) = SummaryRecord(), pair()
    pairs = [(gradient, kernel), (None, keras.Variable([1.0], name="bias"))]
    names = ["gradients", "larc_summaries", "variable_norm"]
    processed = post_process_gradients(pairs, names, 0.1, None, LARC, record)
    assert processed[1][0] is None
    assert processed[0][1] is kernel
    assert [*record.histograms] == ["gradients/kernel"]
    assert float(record.scalars["variable_norm/kernel"]) == 5.0
    assert float(record.scalars["larc_clip_on/kernel"]) == 1.0


ONE = pair()


def test_the_losses_of_a_model_are_added_up() -> None:
    layer = keras.layers.Dense(2, kernel_regularizer=keras.regularizers.L2(0.5))
    model = keras.Sequential([keras.Input((3,)), layer])
    total = get_regularization_loss(losses=model.losses)
    np.testing.assert_allclose(total, sum(model.losses))
    with pytest.raises(ValueError):
        get_regularization_loss()


def test_a_single_replica_keeps_its_gradients() -> None:
    assert reduce_gradients([ONE], on_horovod=True)[0][0] is ONE[0]
    with pytest.raises(NotImplementedError, match="expected on_horovod=True"):
        reduce_gradients([ONE], on_horovod=False)
