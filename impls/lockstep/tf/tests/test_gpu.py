"""What only a GPU can show: that nothing of a step is left on the driver."""

from __future__ import annotations

import pytest
import tensorflow as tf

from lockstep.tf import (
    AdamOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not tf.config.list_physical_devices("GPU"), reason="needs a GPU"
    ),
]


def devices_of_a_step(wrap) -> set[str]:
    """Take a compiled step and return the kinds of device of what it left behind."""
    weight = tf.Variable(tf.ones((64, 8)))
    optimizer = wrap(AdamOptimizer(0.1), weight)

    @tf.function
    def step():
        optimizer.apply_gradients([(tf.ones_like(weight), weight)])

    step()
    state = [weight, optimizer.get_slot(weight, "m"), optimizer.get_slot(weight, "v")]
    return {tf.DeviceSpec.from_string(each.device).device_type for each in state}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda adam, weight: MultitaskOptimizerWrapper(adam),
        lambda adam, weight: VariableClippingOptimizer(adam, {weight.ref(): [1]}, 1.0),
        lambda adam, weight: MixedPrecisionLossScaleOptimizer(adam, "dynamic"),
    ],
    ids=["multitask", "row clipping", "loss scaling"],
)
def test_weights_and_slots_stay_on_the_gpu(wrap):
    assert devices_of_a_step(wrap) == {"GPU"}
