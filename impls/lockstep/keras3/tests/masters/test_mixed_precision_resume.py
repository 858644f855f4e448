"""Float32 masters are saved: files, another process, checkpoints of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.keras3 import (
    AutomaticLossScaler,
    MixedPrecisionLossScaleOptimizer,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.keras3.tests.masters.models import (
    TINY,
    X,
    Y,
    bits,
    fit,
    half,
    masters_of,
    model_with,
)

pytestmark = pytest.mark.filterwarnings(
    # Keras hands its variables to NumPy in a way that NumPy 2 warns of.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)
SAVED: dict[str, Callable[[], Any]] = {
    "a number": lambda: 8.0,
    "LogMax": lambda: AutomaticLossScaler("LogMax"),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", SAVED)
def test_a_file_resumes_to_the_bit(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    options = {"clip_norm": 1.0, "floor_patience": 7, "at_floor": "raise"}
    optimizer = masters_of(keras.optimizers.Adam(TINY), SAVED[kind](), **options)
    model = model_with(optimizer, jit_compile=False)
    fit(model)
    model.save(path)
    again = keras.models.load_model(path)
    config = optimizer.get_config()
    assert again.optimizer.get_config() == config
    assert {name: config[name] for name in options} == options
    for one in (model, again):
        fit(one)
    assert bits(again.optimizer.masters) == bits(optimizer.masters)
    assert bits(again.optimizer.variables) == bits(optimizer.variables)
    assert bits(again.trainable_variables) == bits(model.trainable_variables)


RESUME = """
import sys, keras, numpy as np
import lockstep.keras3
model = keras.models.load_model(sys.argv[1])
data = np.load(sys.argv[2])
model.fit(data["x"], data["y"], batch_size=4, shuffle=False, verbose=0)
state = [*model.trainable_variables, *model.optimizer.variables]
print("".join(np.asarray(v.numpy()).tobytes().hex() for v in state))
"""


def test_another_process_resumes_to_the_bit(
    elsewhere: Callable[..., list[str]], tmp_path: Path
) -> None:
    path, data = tmp_path / "model.keras", tmp_path / "data.npz"
    np.savez(data, x=X, y=Y)
    optimizer = masters_of(keras.optimizers.Adam(TINY), "dynamic")
    model = model_with(optimizer, jit_compile=False)
    fit(model)
    model.save(path)
    fit(model)
    *_, printed = elsewhere(RESUME, path, data)
    state = bits([*model.trainable_variables, *optimizer.variables])
    assert printed == b"".join(state).hex()


WRAPPED: dict[str, Callable[[Any], Any]] = {
    "masters": lambda opt: masters_of(opt, AutomaticLossScaler("LogMax")),
    "multitask": lambda opt: MultitaskOptimizerWrapper(opt),
    "multitask around masters": lambda opt: MultitaskOptimizerWrapper(masters_of(opt)),
    "rows": lambda opt: VariableClippingOptimizer(opt, {"w": [0]}, 9.0),
    "scale": lambda opt: MixedPrecisionLossScaleOptimizer(opt, "dynamic"),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", WRAPPED)
def test_a_checkpoint_of_tensorflow_resumes_to_the_bit(
    kind: str, tmp_path: Path
) -> None:
    def made() -> tuple[Any, Any, tf.train.Checkpoint]:
        w = half([1.0, 2.0])
        optimizer = WRAPPED[kind](keras.optimizers.Adam(TINY))
        optimizer.build([w])
        return w, optimizer, tf.train.Checkpoint(optimizer=optimizer, w=w.value)

    gradient = tf.constant([1.0, -2.0], tf.float16)
    w, optimizer, checkpoint = made()
    optimizer.apply([gradient], [w])
    path = checkpoint.save(tmp_path / "checkpoint")
    again, resumed, other = made()
    other.restore(path).assert_consumed()
    for wrapper, variable in ((optimizer, w), (resumed, again)):
        wrapper.apply([gradient], [variable])
    assert bits([again, *resumed.variables]) == bits([w, *optimizer.variables])
