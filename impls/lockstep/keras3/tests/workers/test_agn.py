"""Workers of one process that share a center, as optimizers of Keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import keras3
from lockstep.keras3 import (
    AGNCustomGetter,
    AGNOptimizer,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.keras3.agn import GLOBAL_VARIABLE_NAME, GRAD_VARIABLE_NAME
from lockstep.keras3.tests.workers.worker_pairs import (
    INPUTS,
    TARGETS,
    model,
    same,
    shared,
    single,
    step,
    weights,
    worker_of,
)


def test_workers_of_one_process_share_one_center() -> None:
    models = [model(1), model(2)]
    one = worker_of(models[0])
    other = worker_of(models[1], one.custom_getter.center)
    other.get_init_op(1)
    assert same(weights(models[0]), weights(models[1]))
    step(models[0], one, 0)
    step(models[1], other, 1)
    assert same(shared(one), shared(other))
    assert not same(weights(models[0]), shared(one))
    step(models[0], one, 2)
    assert same(weights(models[0]), shared(one))
    assert not same(weights(models[1]), shared(one))
    step(models[1], other, 3)
    assert same(weights(models[1]), shared(one))
    assert int(one.local_step) == int(other.local_step) == 2


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", ["eager", "graph", "jit"])
def test_fit_pushes_and_pulls(way: str) -> None:
    trained = model()
    worker = worker_of(trained, communication_period=3)
    options = {"run_eagerly": way == "eager", "jit_compile": way == "jit"}
    trained.compile(worker, "mse", **options)
    before = shared(worker)
    hook = worker.make_session_run_hook(is_chief=True, task_index=0)
    fit = {"batch_size": 1, "shuffle": False, "verbose": 0, "callbacks": [hook]}
    trained.fit(INPUTS[:2], TARGETS[:2], **fit)
    assert same(shared(worker), before)
    trained.fit(INPUTS[2:3], TARGETS[2:3], **{**fit, "callbacks": []})
    assert same(weights(trained), shared(worker))
    assert not same(shared(worker), before)
    assert int(worker.local_step) == 3


def test_the_hook_starts_a_late_joiner_from_the_center() -> None:
    first = model(1)
    one = worker_of(first)
    step(first, one, 0)
    step(first, one, 1)
    late = model(2)
    other = worker_of(late, one.custom_getter.center)
    assert not same(weights(late), shared(one))
    other.make_session_run_hook(is_chief=False, task_index=1).on_train_begin({})
    assert same(weights(late), shared(one))


def test_a_learning_rate_that_a_callback_sets_is_followed_at_the_center() -> None:
    variable, worker = single(communication_period=1)
    worker.apply([tf.ones([2])], [variable])
    worker.learning_rate = 0.25
    worker.apply([tf.ones([2])], [variable])
    assert variable.numpy().tolist() == [0.25, 1.25]


def test_a_schedule_is_followed_at_the_center() -> None:
    rates = keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], [0.5, 0.25, 0.0])
    variable, worker = single(keras.optimizers.SGD(rates), communication_period=1)
    found = []
    for _ in range(3):
        worker.apply([tf.ones([2])], [variable])
        found.append(float(variable.numpy()[0]))
    assert found == [0.5, 0.25, 0.25]


@pytest.mark.filterwarnings("ignore:Gradients do not exist for variables")
def test_absent_gradients_are_neither_pushed_nor_pulled() -> None:
    a, b = (keras.Variable([1.0, 1.0], name=name) for name in "ab")
    getter = AGNCustomGetter("/cpu:0")
    getter([a, b])
    worker = AGNOptimizer(keras.optimizers.SGD(0.5), 1, getter, 2)
    worker.apply([tf.ones([2]), tf.ones([2])], [a, b])
    worker.apply([tf.ones([2]), None], [a, b])
    assert a.numpy().tolist() == [0.5, 0.5]
    assert b.numpy().tolist() == [0.5, 0.5]
    assert worker.get_slot(b, GLOBAL_VARIABLE_NAME).numpy().tolist() == [1.0, 1.0]
    assert worker.get_slot(b, GRAD_VARIABLE_NAME).numpy().tolist() == [1.0, 1.0]
    assert worker.last_step.skipped == ("b",)


def test_global_step_counts_rounds() -> None:
    variable, worker = single(communication_period=2)
    counter = keras.Variable(0, dtype="int64", trainable=False)
    for _ in range(5):
        worker.apply_gradients([(tf.ones([2]), variable)], counter)
    assert int(counter) == 2


def test_a_sparse_gradient_is_gathered_as_its_sum() -> None:
    table, worker = single(value=np.zeros((4, 2)))
    rows = tf.IndexedSlices(tf.ones([3, 2]), tf.constant([1, 1, 3]), [4, 2])
    worker.apply([rows], [table])
    gathered = worker.get_slot(table, GRAD_VARIABLE_NAME).numpy()
    assert gathered.tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]


def test_the_default_shows_its_slots_and_the_wrapped_optimizers() -> None:
    variable, worker = single(keras.optimizers.SGD(0.5, momentum=0.5))
    worker.apply([tf.ones([2])], [variable])
    names = {"momentum", GRAD_VARIABLE_NAME, GLOBAL_VARIABLE_NAME}
    assert set(worker.get_slot_names()) == names
    center = worker.get_slot(variable, GLOBAL_VARIABLE_NAME)
    assert worker.get_slot(center, "momentum").shape == (2,)


def test_wrappers_go_inside() -> None:
    rule = VariableClippingOptimizer(keras.optimizers.SGD(1.0), {"w": [0]}, 2.5)
    rule = MultitaskOptimizerWrapper(rule)
    variable, worker = single(rule, value=[3.0, 4.0], communication_period=1)
    worker.apply([tf.constant([1e-30, 0.0])], [variable])
    assert variable.numpy().tolist() == [1.5, 2.0]


@pytest.mark.parametrize(("names", "expected"), [(keras3, [1.5, 2.0])])
def test_row_clipping_inside_cuts_the_shared_rows_but_not_under_strict(
    names: Any, expected: list[float]
) -> None:
    rule = names.VariableClippingOptimizer(keras.optimizers.SGD(1.0), {"w": [0]}, 2.5)
    options = {"names": names, "communication_period": 1}
    variable, worker = single(rule, value=[3.0, 4.0], **options)
    worker.build([variable])
    worker.get_init_op(0)
    worker.apply([tf.zeros([2])], [variable])
    assert variable.numpy().tolist() == expected


def test_variables_of_one_path_are_told_apart_by_their_order() -> None:
    getter = AGNCustomGetter("/cpu:0")
    getter([keras.Variable([1.0], name="w"), keras.Variable([2.0], name="w")])
    assert list(getter.center.shared) == ["w", "w#1"]


def test_what_is_not_trainable_passes_through_the_getter() -> None:
    getter = AGNCustomGetter("/cpu:0")
    fixed = keras.Variable([1.0], trainable=False)
    assert getter([fixed]) == [fixed]
    assert not getter.center.shared
