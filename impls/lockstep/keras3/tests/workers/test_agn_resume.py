"""AGN's workers in Keras are saved and go on: models, checkpoints, configurations."""

from __future__ import annotations

from pathlib import Path

import keras
import pytest
import tensorflow as tf

from lockstep import keras3
from lockstep.keras3.tests.workers.worker_pairs import (
    model,
    same,
    single,
    step,
    weights,
    worker_of,
)


def test_a_checkpoint_of_tensorflow_holds_the_center_too(tmp_path: Path) -> None:
    trained = model()
    worker = worker_of(trained)
    for row in (0, 1, 2):
        step(trained, worker, row)
    path = tf.train.Checkpoint(model=trained, opt=worker).save(str(tmp_path / "c"))
    fresh = model(3)
    other = worker_of(fresh)
    other.build(fresh.trainable_variables)
    tf.train.Checkpoint(model=fresh, opt=other).restore(path).assert_consumed()
    assert int(other.local_step) == 3
    for each, trains in ((fresh, other), (trained, worker)):
        step(each, trains, 3)
    assert same(weights(fresh), weights(trained))


def test_what_comes_from_a_configuration_takes_what_it_is_built_with() -> None:
    _, worker = single()
    again = type(worker).from_config(worker.get_config())
    variable = keras.Variable([3.0], name="v")
    again.build([variable])
    assert list(again.custom_getter.center.shared) == ["v"]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_row_clipping_inside_finds_its_rows_in_a_model_loaded_under_another_path(
    tmp_path: Path,
) -> None:
    layers = [keras.Input((2,)), keras.layers.Dense(1, name="d")]
    trained = keras.Sequential(layers, name="net")
    getter = keras3.AGNCustomGetter("/cpu:0")
    kernel = getter(trained.trainable_variables)[0]
    assert kernel.path == "net/d/kernel", "a loaded model has d/kernel"
    rows = keras3.VariableClippingOptimizer(
        keras.optimizers.SGD(1.0), {kernel.path: [0]}, 0.5
    )
    trained.compile(keras3.AGNOptimizer(rows, 1, getter, 1), "mse")
    trained.optimizer.build(trained.trainable_variables)
    trained.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    gradients = [tf.constant([[3.0], [4.0]]), tf.zeros([1])]
    loaded.optimizer.apply(gradients, loaded.trainable_variables)
    assert float(tf.norm(loaded.trainable_variables[0].value)) == pytest.approx(0.5)
