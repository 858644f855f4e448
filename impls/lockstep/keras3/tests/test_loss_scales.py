"""Loss scales by themselves: moves, configurations, checkpoints, bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import lockstep
from lockstep import errors, reference
from lockstep.keras3 import (
    AutomaticLossScaler,
    DynamicLossScale,
    MultitaskOptimizerWrapper,
)
from lockstep.keras3.tests.models import momentum, scaled

pytestmark = pytest.mark.filterwarnings(
    # Keras hands its variables to NumPy in a way that NumPy 2 warns of.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)


# The scales by themselves

OPTIONS: list[dict[str, Any]] = [
    {},
    {"growth_factor": 1.7, "backoff_factor": 0.3, "floor": 1e-3},
    {"multiplier": 3.0, "ceiling": 2.0**20},
    {"hysteresis": 4, "backoff_factor": 0.5},
    {"tolerance": 1 / 3, "growth_factor": 4.0},
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_200_random_steps_move_the_scale_as_in_the_reference(
    options: dict[str, Any],
) -> None:
    ours = DynamicLossScale(2.0**10, 3, **options)
    theirs = reference.DynamicLossScale(2.0**10, 3, **options)
    # Eagerly: the rewriting of graphs divides by 3 as if it multiplied by 1/3.
    moved = set()
    for overflows in np.random.default_rng(len(str(options))).random(200) < 0.3:
        ours.update([tf.constant([np.inf if overflows else 1.0])])
        theirs.move(not overflows)
        found = [np.asarray(variable).item() for variable in ours.variables]
        assert found == list(theirs.state)[: len(found)]
        moved.add(float(theirs()))
    assert len(moved) > 3


def test_a_configuration_makes_the_same_object() -> None:
    names = lockstep.keras3
    scales = [names.FixedLossScale(3), names.DynamicLossScale(8.0, 3, 4.0)]
    scales += [DynamicLossScale(8.0, **options) for options in OPTIONS]
    for made in [*scales, names.AutomaticLossScaler("LogMax", {"beta1": 0.5})]:
        config = keras.saving.serialize_keras_object(made)
        again = keras.saving.deserialize_keras_object(config)
        assert type(again) is type(made) and again.get_config() == made.get_config()
    for scale in (4, "dynamic", scales[1]):
        nest = MultitaskOptimizerWrapper(
            names.MixedPrecisionLossScaleOptimizer(momentum(), scale)
        )
        again = type(nest).from_config(nest.get_config())
        assert again.get_config() == nest.get_config()
        assert repr(again.inner_optimizer.scale_object) == repr(
            nest.inner_optimizer.scale_object
        )


# Bad input

W = keras.Variable([1.0], name="w")
REFUSED: dict[str, tuple[Callable[[], Any], type]] = {
    "patience": (lambda: DynamicLossScale(hysteresis=0), ValueError),
    "a norm": (lambda: scaled(2.0, clip_norm=0.0), ValueError),
    "integers": (lambda: DynamicLossScale().update([tf.constant([1])]), TypeError),
    "several dtypes": (
        lambda: AutomaticLossScaler.check_grads(
            [(tf.ones(1), W), (tf.ones(1, tf.float16), W)]
        ),
        TypeError,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused(case: str) -> None:
    make, kind = REFUSED[case]
    with pytest.raises(kind) as caught:
        make()
    assert isinstance(caught.value, errors.LockstepError)
