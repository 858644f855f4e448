"""State in a file of another stack is left out; positions alone do not tell."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from lockstep.keras3 import (
    AutomaticLossScaler,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
)

pytestmark = [
    # Keras 3.15 converts its variables by a protocol that NumPy 2 deprecates.
    pytest.mark.filterwarnings("ignore:__array__ impl:DeprecationWarning"),
    # The optimizer inside, of which the file has nothing, warns too.
    pytest.mark.filterwarnings("ignore:Skipping variable loading:UserWarning"),
]

STACKS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda opt: opt,
    "multitask": MultitaskOptimizerWrapper,
    "keras": lambda opt: keras.optimizers.LossScaleOptimizer(opt, initial_scale=8.0),
    "fixed": lambda opt: MixedPrecisionLossScaleOptimizer(opt, 8.0),
    "dynamic": lambda opt: MixedPrecisionLossScaleOptimizer(opt, "dynamic"),
    "logmax": lambda opt: MixedPrecisionOptimizerWrapper(
        opt, AutomaticLossScaler("LogMax")
    ),
}
SCALE = 2.0**15


def saved(optimizer: Any, path: Path, dtype: str = "float32") -> keras.Model:
    """Return a model after a step with this optimizer, whose weights are saved."""
    model = keras.Sequential(
        [keras.layers.Input([3]), keras.layers.Dense(1, dtype=dtype)]
    )
    model.compile(optimizer, "mse", jit_compile=False, auto_scale_loss=False)
    optimizer.build(model.trainable_variables)
    model.train_on_batch(np.ones((2, 3)), np.ones((2, 1)))
    model.save_weights(path)
    return model


@pytest.mark.sample(2)
@pytest.mark.parametrize("other", [name for name in STACKS if name != "dynamic"])
def test_a_scale_is_never_another_number_of_a_file(other: str, tmp_path: Path) -> None:
    path = tmp_path / "model.weights.h5"
    saved(STACKS[other](keras.optimizers.Adam(0.1)), path)
    optimizer = STACKS["dynamic"](keras.optimizers.Adam(0.1))
    model = saved(optimizer, tmp_path / "other.weights.h5")
    with pytest.warns(UserWarning, match="expected a file with the 4 variables"):
        model.load_weights(path)
    assert float(optimizer.loss_scale) == SCALE
    assert int(optimizer.skipped_steps) == 0


def test_a_count_of_skips_is_never_a_scale(tmp_path: Path) -> None:
    path = tmp_path / "model.weights.h5"
    saved(STACKS["dynamic"](keras.optimizers.Adam(0.1)), path)
    optimizer = STACKS["fixed"](keras.optimizers.Adam(0.1))
    model = saved(optimizer, tmp_path / "other.weights.h5")
    with pytest.warns(UserWarning, match="are not loaded"):
        model.load_weights(path)
    assert int(optimizer.skipped_steps) == 0


def test_a_wrapper_that_is_not_built_is_told_to_build(tmp_path: Path) -> None:
    path = tmp_path / "model.weights.h5"
    make = STACKS["logmax"]
    model = saved(make(keras.optimizers.Adam(0.1)), path, "float16")
    optimizer = make(keras.optimizers.Adam(0.1))
    model.compile(optimizer, "mse")
    with pytest.warns(UserWarning, match="call build before, and load into the stack"):
        model.load_weights(path)
    optimizer.build(model.trainable_variables)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.load_weights(path)
    assert int(optimizer.iterations) == 1
