"""Configurations of loss scales; their rules are tested with TensorFlow."""

from __future__ import annotations

from typing import Any

import keras
import pytest

from lockstep import keras3 as ls
from lockstep.keras3.tests.models import momentum

SCALES: dict[str, Any] = {
    "fixed": lambda: ls.FixedLossScale(3),
    "dynamic": lambda: ls.DynamicLossScale(8.0, 3, 4.0, tolerance=0.25),
    "logmax": lambda: ls.AutomaticLossScaler("LogMax", {"beta1": 0.5}),
}


@pytest.mark.parametrize("name", SCALES)
def test_a_configuration_makes_the_same_object(name: str) -> None:
    made = SCALES[name]()
    config = keras.saving.serialize_keras_object(made)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(made) and again.get_config() == made.get_config()


@pytest.mark.parametrize("scale", [4, "dynamic", ls.DynamicLossScale(8.0, 3, 4.0)])
def test_a_configuration_of_a_stack_has_the_scale(scale: Any) -> None:
    scaled = ls.MixedPrecisionLossScaleOptimizer(momentum(), scale)
    nest = ls.MultitaskOptimizerWrapper(scaled)
    again = type(nest).from_config(nest.get_config())
    assert again.get_config() == nest.get_config()
    assert repr(again.inner_optimizer.scale_object) == repr(scaled.scale_object)
