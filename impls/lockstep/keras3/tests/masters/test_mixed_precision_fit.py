"""Float32 masters under ``fit``: scales, averages, constraints."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.keras3 import DynamicLossScale
from lockstep.keras3.tests.masters.models import (
    bits,
    each_half,
    fit,
    half,
    masters_of,
    model_with,
    rounded,
)

pytestmark = pytest.mark.filterwarnings(
    # Keras hands its variables to NumPy in a way that NumPy 2 warns of.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"
)


def test_load_weights_moves_the_masters(tmp_path: Path) -> None:
    model = model_with(masters_of(keras.optimizers.SGD(0.0)), jit_compile=False)
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    saved = bits(model.trainable_variables)
    model.optimizer.learning_rate = 0.5
    fit(model)
    assert bits(model.trainable_variables) != saved
    model.load_weights(path)
    model.optimizer.learning_rate = 0.0
    fit(model)
    assert bits(model.trainable_variables) == saved
    wide = [tf.cast(v.value, tf.float32) for v in model.trainable_variables]
    assert bits(model.optimizer.masters) == bits(wide)


@pytest.mark.sample(1)
@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
@each_half
def test_fit_scales_and_trains_through_masters(jit: bool, dtype: str) -> None:
    scale = DynamicLossScale(2.0**4, increment_period=2)
    model = model_with(masters_of(None, scale), dtype, jit_compile=jit)
    before = bits(model.trainable_variables)
    fit(model, epochs=2)
    optimizer = model.optimizer
    assert int(optimizer.iterations) == 6 and float(scale()) == 2.0**7
    assert len(optimizer.masters) == 4
    pairs = zip(model.trainable_variables, before, strict=True)
    for variable, first in pairs:
        master = optimizer.master(variable)
        assert master.dtype == "float32" and variable.dtype == dtype
        assert bits([variable])[0] == rounded(master, dtype) != first


def test_under_mixed_float16_it_scales_and_makes_no_masters() -> None:
    optimizer = masters_of(None, DynamicLossScale(2.0**10))
    model = model_with(optimizer, "mixed_float16", jit_compile=False)
    assert model.optimizer is optimizer
    fit(model)
    assert optimizer.masters == [] and int(optimizer.iterations) == 3
    assert all(v.dtype == "float32" for v in model.trainable_variables)


def test_averages_constraints_and_exclusions_are_those_of_the_weights() -> None:
    w, v = half([1.0, 4.0]), half([2.0], name="v")
    w.constraint = keras.constraints.MaxNorm(2.5, axis=0)
    inner = keras.optimizers.SGD(1.0, weight_decay=0.5, use_ema=True, ema_momentum=0.5)
    optimizer = masters_of(inner)
    optimizer.exclude_from_weight_decay(var_list=[w])
    # Keras keeps the average before the constraint: 0.5 (1, 4) + 0.5 (4, 8).
    for gradient in ([0.0, 1.0], [-3.0, 0.0]):
        optimizer.apply(
            [tf.constant(gradient, tf.float16), tf.zeros([1], "half")], [w, v]
        )
    assert v.numpy().tolist() == [0.5]
    assert np.linalg.norm(w.numpy().astype(np.float32)) <= 2.502
    assert np.linalg.norm(optimizer.master(w).numpy()) <= 2.500001
    optimizer.finalize_variable_values([w, v])
    average = optimizer.get_slot(w, "average").numpy()
    assert optimizer.master(w).numpy().tolist() == average.tolist()
    assert bits([w])[0] == rounded(optimizer.master(w), "float16")


@pytest.mark.filterwarnings("ignore:Gradients do not exist:UserWarning")
def test_averages_are_assigned_to_variables_without_a_gradient_too() -> None:
    options = {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 3}
    ends = []
    for dtype, wrap in (("float16", masters_of), ("float32", lambda inner: inner)):
        w, v = half([1.0], dtype), half([2.0], dtype, name="v")
        optimizer = wrap(keras.optimizers.SGD(0.5, **options))
        one = tf.ones([1], dtype)
        for gradient in (one, one, None, one):
            optimizer.apply([one, gradient], [w, v])
        ends.append([v.numpy().astype(np.float32) for v in (w, v)])
    np.testing.assert_array_equal(*ends)
