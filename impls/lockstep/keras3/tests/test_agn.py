"""Workers of one process that share a center: what the recorded cases do not cover."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import keras3
from lockstep.errors import NotFromGetterError, UnsupportedError
from lockstep.keras3 import (
    AGNCustomGetter,
    AGNOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.keras3.tests.agn_teams import INPUTS, TARGETS, Team, model, single

SHARED, GATHERED = AGNOptimizer.GLOBAL_VARIABLE_NAME, AGNOptimizer.GRAD_VARIABLE_NAME
SGD = keras.optimizers.SGD

# Rounds


def test_workers_of_one_process_share_one_center() -> None:
    team = Team()
    assert team.weights(0) == team.weights(1)
    team.step(0, 0)
    team.step(1, 1)
    assert team.weights(0) != team.shared()
    team.step(0, 2)
    assert team.weights(0) == team.shared() != team.weights(1)
    team.step(1, 3)
    assert team.weights(1) == team.shared()
    assert [int(worker.local_step) for worker in team.workers] == [2, 2]
    late = Team(count=1)
    assert late.weights(0) != team.shared()
    getter = AGNCustomGetter("/cpu:0", team.center)
    getter(late.models[0])
    worker = AGNOptimizer(SGD(), 2, getter)
    worker.make_session_run_hook(False, 1).on_train_begin({})
    assert late.weights(0) == team.shared()


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", ["eager", "graph", "jit"])
def test_fit_pushes_and_pulls(way: str) -> None:
    team = Team(count=1, period=3)
    (trained,), (worker,) = team.models, team.workers
    options = {"run_eagerly": way == "eager", "jit_compile": way == "jit"}
    trained.compile(worker, "mse", **options)
    before = team.shared()
    hook = worker.make_session_run_hook(is_chief=True, task_index=0)
    fit = {"batch_size": 1, "shuffle": False, "verbose": 0}
    trained.fit(INPUTS[:2], TARGETS[:2], callbacks=[hook], **fit)
    assert team.shared() == before
    trained.fit(INPUTS[2:3], TARGETS[2:3], **fit)
    assert team.weights(0) == team.shared() != before
    assert int(worker.local_step) == 3


def test_rates_of_callbacks_and_schedules_are_followed_at_the_center() -> None:
    variable, worker = single(period=1)
    worker.apply([tf.ones([2])], [variable])
    worker.learning_rate = 0.25
    worker.apply([tf.ones([2])], [variable])
    assert variable.numpy().tolist() == [0.25, 1.25]
    rates = keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], [0.5, 0.25, 0.0])
    variable, worker = single(SGD(rates), period=1)
    for expected in (0.5, 0.25, 0.25):
        worker.apply([tf.ones([2])], [variable])
        assert variable.numpy()[0] == expected


@pytest.mark.filterwarnings("ignore:Gradients do not exist for variables")
def test_absent_gradients_are_neither_pushed_nor_pulled() -> None:
    a, b = (keras.Variable([1.0, 1.0], name=name) for name in "ab")
    getter = AGNCustomGetter("/cpu:0")
    getter([a, b])
    worker = AGNOptimizer(SGD(0.5), 1, getter, 2)
    worker.apply([tf.ones([2]), tf.ones([2])], [a, b])
    worker.apply([tf.ones([2]), None], [a, b])
    assert a.numpy().tolist() == b.numpy().tolist() == [0.5, 0.5]
    assert worker.get_slot(b, SHARED).numpy().tolist() == [1.0, 1.0]
    assert worker.get_slot(b, GATHERED).numpy().tolist() == [1.0, 1.0]
    assert worker.last_step.skipped == ("b",)


def test_global_step_counts_rounds() -> None:
    variable, worker = single(period=2)
    counter = keras.Variable(0, dtype="int64", trainable=False)
    for _ in range(5):
        worker.apply_gradients([(tf.ones([2]), variable)], counter)
    assert int(counter) == 2


def test_a_sparse_gradient_is_gathered_as_its_sum() -> None:
    table, worker = single(value=np.zeros((4, 2)))
    rows = tf.IndexedSlices(tf.ones([3, 2]), tf.constant([1, 1, 3]), [4, 2])
    worker.apply([rows], [table])
    gathered = worker.get_slot(table, GATHERED).numpy()
    assert gathered.tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]


def test_slots_are_the_wrapped_optimizers_and_two_more() -> None:
    variable, worker = single(SGD(0.5, momentum=0.5))
    worker.apply([tf.ones([2])], [variable])
    assert set(worker.get_slot_names()) == {"momentum", GATHERED, SHARED}
    center = worker.get_slot(variable, SHARED)
    assert worker.get_slot(center, "momentum").shape == (2,)


@pytest.mark.parametrize("gradient", [[1e-30, 0.0], [0.0, 0.0]])
def test_wrappers_go_inside_and_row_clipping_clips_the_shared_rows(gradient) -> None:
    rule = VariableClippingOptimizer(SGD(1.0), {"w": [0]}, 2.5)
    rule = MultitaskOptimizerWrapper(rule) if any(gradient) else rule
    variable, worker = single(rule, value=[3.0, 4.0], period=1)
    worker.build([variable])
    worker.get_init_op(0)
    worker.apply([tf.constant(gradient)], [variable])
    assert variable.numpy().tolist() == [1.5, 2.0]
    assert worker.get_slot(variable, SHARED).numpy().tolist() == [1.5, 2.0]


# The getter, and arguments


def weight(name: str = "w", value: Any = (1.0, 2.0)) -> keras.Variable:
    return keras.Variable(np.float32(value), name=name)


def filled(*variables: Any) -> AGNCustomGetter:
    """Return a getter that filled a center, with w if there is nothing else."""
    getter = AGNCustomGetter("/cpu:0")
    getter(list(variables) or [weight()])
    return getter


def beside(first: AGNCustomGetter) -> AGNCustomGetter:
    return AGNCustomGetter("/cpu:0", center=first.center)


def unnamed() -> keras.Model:
    """Return a model whose layers have names that Keras gives."""
    layers = [keras.layers.Dense(2) for _ in range(2)]
    return keras.Sequential([keras.Input((2,)), *layers])


def test_models_join_by_the_names_of_layers_or_of_pairs() -> None:
    first = filled(*unnamed().trainable_variables)
    known, second = list(first.center.shared), beside(first)
    with pytest.raises(UnsupportedError):
        second(unnamed())
    assert list(first.center.shared) == known and not second._global_map
    first = AGNCustomGetter("/cpu:0")
    first(model())
    beside(first)(model())
    assert len(first.center.shared) == 4
    pairs = [
        [(f"v{k}", v) for k, v in enumerate(m.trainable_variables)]
        for m in (unnamed(), unnamed())
    ]
    first = filled(*pairs[0])
    assert beside(first)(pairs[1]) == [variable for _, variable in pairs[1]]
    assert list(first.center.shared) == ["v0", "v1", "v2", "v3"]


def test_equal_names_are_numbered_unless_they_were_given() -> None:
    getter = filled(weight(), weight(value=[2.0]))
    assert list(getter.center.shared) == ["w", "w#1"]
    getter = filled(("w", weight()))
    with pytest.raises(UnsupportedError):
        getter([("w", weight())])
    fixed = keras.Variable([1.0], trainable=False)
    assert getter([weight(), fixed])[1] is fixed
    assert list(getter.center.shared) == ["w", "w#1"]


def test_what_cannot_be_inside_or_around_is_refused() -> None:
    variable, worker = single()
    for optimizer in (
        SGD(0.5, gradient_accumulation_steps=2),
        keras.optimizers.LossScaleOptimizer(SGD(0.5)),
        MixedPrecisionLossScaleOptimizer(SGD(0.5), 8.0),
        MixedPrecisionOptimizerWrapper(SGD(0.5), 8.0),
        worker,
    ):
        with pytest.raises(UnsupportedError):
            AGNOptimizer(optimizer, 1, worker.custom_getter)
    with pytest.raises(UnsupportedError):
        MixedPrecisionOptimizerWrapper(worker, 8.0)
    given = (lambda: keras.ops.sum(variable), worker, None, lambda step: 0.5)
    with pytest.raises(UnsupportedError):
        keras3.optimize_loss(*given, [variable], dtype="mixed")


def test_a_variable_that_the_getter_was_not_given_is_refused() -> None:
    variable, worker = single()
    stranger = keras.Variable([1.0, 1.0], name="stranger")
    for given in ([stranger], [variable, stranger]):
        with pytest.raises(NotFromGetterError):
            worker.apply([tf.ones([2])] * len(given), given)
    assert variable.numpy().tolist() == [1.0, 2.0]
    assert int(worker.local_step) == 0


def test_under_parameter_servers_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers would train one copy of the weights."""
    variable, worker = single()
    kind = tf.distribute.ParameterServerStrategy
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: kind.__new__(kind))
    with pytest.raises(UnsupportedError):
        single()
    with pytest.raises(UnsupportedError):
        worker.apply([np.ones(2, np.float32)], [variable])
    assert variable.numpy().tolist() == [1.0, 2.0]


# State


def test_what_comes_from_a_configuration_takes_what_it_is_built_with() -> None:
    _, worker = single()
    again = type(worker).from_config(worker.get_config())
    again.build([keras.Variable([3.0], name="v")])
    assert list(again.custom_getter.center.shared) == ["v"]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_row_clipping_inside_finds_its_rows_in_a_model_loaded_under_another_path(
    tmp_path: Path,
) -> None:
    layers = [keras.Input((2,)), keras.layers.Dense(1, name="d")]
    trained = keras.Sequential(layers, name="net")
    getter = AGNCustomGetter("/cpu:0")
    kernel = getter(trained.trainable_variables)[0]
    assert kernel.path == "net/d/kernel", "a loaded model has d/kernel"
    rows = VariableClippingOptimizer(SGD(1.0), {kernel.path: [0]}, 0.5)
    trained.compile(AGNOptimizer(rows, 1, getter, 1), "mse")
    trained.optimizer.build(trained.trainable_variables)
    trained.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    gradients = [tf.constant([[3.0], [4.0]]), tf.zeros([1])]
    loaded.optimizer.apply(gradients, loaded.trainable_variables)
    # One ULP of rounding below the limit.
    assert float(tf.norm(loaded.trainable_variables[0].value)) == pytest.approx(0.5)
