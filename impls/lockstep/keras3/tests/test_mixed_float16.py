"""Keras' own loss scaling and the policy mixed_float16: no loss is scaled twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from lockstep.errors import UnsupportedError
from lockstep.keras3 import (
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    optimize_loss,
)
from lockstep.keras3.tests.models import X, fit, model_with

pytestmark = pytest.mark.filterwarnings(
    # Keras hands its variables to NumPy in a way that NumPy 2 warns of.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)


def half_precision(optimizer: Any) -> keras.Model:
    policy = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    try:
        return model_with(optimizer, jit_compile=False)
    finally:
        keras.mixed_precision.set_dtype_policy(policy)


KERAS_SCALES: dict[str, Callable[[Any], Any]] = {
    "multitask": MultitaskOptimizerWrapper,
    "rows": lambda opt: VariableClippingOptimizer(opt, {}, 1.0),
    "loss scale": lambda opt: MixedPrecisionLossScaleOptimizer(opt, 8.0),
    "masters": lambda opt: MixedPrecisionOptimizerWrapper(opt, 8.0),
    "optimize_loss": lambda opt: optimize_loss(
        lambda: 0.0, opt, None, lambda step: 0.1, [keras.Variable([1.0])]
    ),
}


@pytest.mark.parametrize("around", KERAS_SCALES)
def test_keras_loss_scaling_inside_is_refused_as_compile_would_repeat_it(
    around: str,
) -> None:
    inner = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5))
    with pytest.raises(UnsupportedError, match=r"got LossScaleOptimizer; .*\.") as told:
        KERAS_SCALES[around](inner)
    assert isinstance(told.value, ValueError)


OUTERMOST: dict[str, Callable[[Any], Any]] = {
    "multitask": MultitaskOptimizerWrapper,
    "rows": lambda opt: VariableClippingOptimizer(opt, {}, 1.0),
    "loss scale": lambda opt: MixedPrecisionLossScaleOptimizer(opt, "dynamic"),
    "masters": lambda opt: MixedPrecisionOptimizerWrapper(opt, "dynamic"),
    "loss scale inside": lambda opt: MultitaskOptimizerWrapper(
        MixedPrecisionLossScaleOptimizer(opt, "dynamic")
    ),
}


@pytest.fixture(scope="module")
def bare() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The weights of the bare optimizer before and after training."""
    model = half_precision(keras.optimizers.SGD(0.5))
    before = [variable.numpy() for variable in model.trainable_variables]
    fit(model, X)
    return before, [variable.numpy() for variable in model.trainable_variables]


# Keras' scaling takes the place of ours.
@pytest.mark.sample(1)
@pytest.mark.filterwarnings("ignore:.*expected no loss scaling of Keras:UserWarning")
@pytest.mark.parametrize("around", OUTERMOST)
@pytest.mark.parametrize("outside", [False, True], ids=["compile adds", "by hand"])
def test_under_mixed_float16_every_stack_trains_as_the_bare_optimizer(
    around: str, outside: bool, bare: tuple[list[np.ndarray], list[np.ndarray]]
) -> None:
    before, after = bare
    optimizer = OUTERMOST[around](keras.optimizers.SGD(0.5))
    scaling = keras.optimizers.LossScaleOptimizer(optimizer) if outside else optimizer
    model = half_precision(scaling)
    for variable, value in zip(model.trainable_variables, before, strict=True):
        variable.assign(value)
    fit(model, X)
    assert int(optimizer.iterations) == 2
    for mine, theirs in zip(model.trainable_variables, after, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs, rtol=2**-8)
