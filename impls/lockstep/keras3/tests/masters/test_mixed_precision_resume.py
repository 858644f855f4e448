"""Float32 masters are saved: files, another process, checkpoints of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest

from lockstep.keras3.tests.masters.models import (
    TINY,
    X,
    Y,
    bits,
    fit,
    masters_of,
    model_with,
)

pytestmark = pytest.mark.filterwarnings(
    # Keras hands its variables to NumPy in a way that NumPy 2 warns of.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)


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
