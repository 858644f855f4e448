"""Regularizers that act on the float32 masters."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.keras3 import mp_regularizer_wrapper
from lockstep.keras3.tests.masters.models import MODES, each_mode, half, masters_of

pytestmark = pytest.mark.filterwarnings(
    # Keras hands its variables to NumPy in a way that NumPy 2 warns of.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)


@each_mode
def test_a_regularizer_acts_on_the_master(mode: str) -> None:
    w = half([1.0, 2.0])
    regularizer = mp_regularizer_wrapper(keras.regularizers.L2(0.5))
    assert float(regularizer(w)) == 0
    optimizer = masters_of(keras.optimizers.SGD(2.0**-12), 8.0)
    optimizer.build([w])
    step = MODES[mode](lambda: optimizer.apply([tf.zeros([2], tf.float16)], [w]))
    expected = np.float32([1.0, 2.0])
    for _ in range(3):
        step()
        expected = expected - np.float32(2.0**-12) * expected
    # The weight itself has not moved at the first step: it is not what is penalised.
    assert optimizer.master(w).numpy().tolist() == expected.tolist()


def test_a_penalty_that_is_no_tensor_is_refused() -> None:
    w = half([1.0, 2.0])
    mp_regularizer_wrapper(lambda weight: 1.0)(w)
    optimizer = masters_of(keras.optimizers.SGD(1.0), 8.0)
    optimizer.build([w])
    with pytest.raises(TypeError, match=r"expected a penalty that is .*, got 1\.0;"):
        optimizer.apply([tf.zeros([2], tf.float16)], [w])


def test_a_layer_takes_the_regularizer_and_a_file_keeps_it(tmp_path: Path) -> None:
    def model_of(dtype: str) -> keras.Model:
        keras.utils.set_random_seed(0)
        kernel = mp_regularizer_wrapper(keras.regularizers.L2(0.25))
        layer = keras.layers.Dense(1, dtype=dtype, kernel_regularizer=kernel)
        model = keras.Sequential([keras.layers.Input([3], dtype="float16"), layer])
        optimizer = masters_of(keras.optimizers.SGD(0.5), 64.0)
        model.compile(optimizer, "mse", jit_compile=False)
        return model

    x = np.zeros((4, 3), np.float16)
    for dtype in ("float16", "float32"):
        model = model_of(dtype)
        kernel = model.layers[0].kernel
        first = np.asarray(kernel.numpy(), np.float32)
        model.fit(x, x[:, :1], verbose=0)
        master = model.optimizer.master(kernel).numpy()
        np.testing.assert_array_equal(master, first - 0.5 * (0.5 * first))
    model_of("float16").save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").layers[0]
    assert float(again.kernel_regularizer(again.kernel)) == 0
    assert again.kernel_regularizer.regularizer.l2 == np.float32(0.25)
