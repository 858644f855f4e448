"""Workers of one process that share a center, as optimizers of Keras."""

from __future__ import annotations

from pathlib import Path
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
from lockstep.keras3 import strict as keras3_strict
from lockstep.spec.agn import GLOBAL_VARIABLE_NAME, GRAD_VARIABLE_NAME

INPUTS = np.float32([[1, 2], [3, -1], [0, 1], [2, 2]])
TARGETS = np.float32([[1], [-1], [2], [0]])


def model(seed: int = 0) -> keras.Model:
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(3, "tanh", name="hidden")(inputs)
    return keras.Model(inputs, keras.layers.Dense(1, name="head")(hidden))


def worker_of(trained: keras.Model, center: Any = None, **options: Any) -> Any:
    """Return a worker that trains a model, every other step with the others."""
    names = options.pop("names", keras3)
    rule = options.pop("rule", None) or keras.optimizers.SGD(0.125, momentum=0.5)
    getter = names.AGNCustomGetter("/cpu:0", center)
    getter(trained)
    period = options.pop("communication_period", 2)
    return names.AGNOptimizer(rule, 2, getter, period, **options)


def single(
    rule: Any = None, value: Any = (1.0, 2.0), **options: Any
) -> tuple[keras.Variable, Any]:
    """Return a variable and a worker that trains it."""
    variable = keras.Variable(np.float32(value), name="w")
    names = options.pop("names", keras3)
    getter = names.AGNCustomGetter("/cpu:0")
    getter([variable])
    rule = rule or keras.optimizers.SGD(0.5)
    return variable, names.AGNOptimizer(rule, 1, getter, **options)


def weights(trained: keras.Model) -> list[Any]:
    return [v.numpy() for v in trained.trainable_variables]


def shared(worker: Any) -> list[Any]:
    return [v.numpy() for v in worker.custom_getter.center.shared.values()]


def same(one: list[Any], other: list[Any]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def step(trained: keras.Model, worker: Any, row: int) -> None:
    """Train on one row."""
    with tf.GradientTape() as tape:
        loss = keras.ops.mean(
            (trained(INPUTS[row : row + 1]) - TARGETS[row : row + 1]) ** 2
        )
    variables = trained.trainable_variables
    values = [variable.value for variable in variables]
    worker.apply(tape.gradient(loss, values), variables)


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


@pytest.mark.parametrize("way", ["graph", "jit"])
def test_compiled_steps_are_the_eager_ones(way: str) -> None:
    found = []
    for eager in (True, False):
        trained = model()
        rule = keras.optimizers.Adam(0.0625)
        worker = worker_of(trained, rule=rule, communication_period=2)
        jit = way == "jit" and not eager
        trained.compile(worker, "mse", run_eagerly=eager, jit_compile=jit)
        options = {"batch_size": 1, "shuffle": False, "verbose": 0}
        trained.fit(INPUTS, TARGETS, epochs=2, **options)
        found.append(weights(trained))
    # XLA fuses and reorders what eager steps round one by one, over eight steps.
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


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


# Keras turns a variable into an array as NumPy 2 does not like it.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("names", [keras3, keras3_strict], ids=["default", "strict"])
@pytest.mark.parametrize("rule", ["SGD", "Adam"])
def test_a_saved_model_goes_on_as_if_it_had_not_been(
    tmp_path: Path, rule: str, names: Any
) -> None:
    made = getattr(keras.optimizers, rule)(0.125)
    trained = model()
    worker = worker_of(trained, names=names, rule=made, communication_period=3)
    trained.compile(worker, "mse")
    # Not fit, which hands over an iterator of pairs: strict refuses one.
    for row in range(4):
        step(trained, worker, row)
    trained.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.optimizer, names.AGNOptimizer)
    assert int(loaded.optimizer.local_step) == 4
    assert same(shared(loaded.optimizer), shared(worker))
    for each in (trained, loaded):
        for row in range(4):
            step(each, each.optimizer, row)
    assert same(weights(loaded), weights(trained))
    assert same(shared(loaded.optimizer), shared(worker))


def test_strict_refuses_the_iterator_that_fit_hands_over() -> None:
    trained = model()
    trained.compile(worker_of(trained, names=keras3_strict), "mse", run_eagerly=True)
    with pytest.raises(ValueError, match="got a one-shot zip"):
        trained.fit(INPUTS, TARGETS, verbose=0)


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


def test_the_configuration_makes_the_same_optimizer() -> None:
    _, worker = single(commit="delta", communication_period=7)
    config = keras.saving.serialize_keras_object(worker)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == worker.get_config()
    assert (again.communication_period, again.commit) == (7, "delta")


def test_what_comes_from_a_configuration_takes_what_it_is_built_with() -> None:
    _, worker = single()
    again = type(worker).from_config(worker.get_config())
    variable = keras.Variable([3.0], name="v")
    again.build([variable])
    assert list(again.custom_getter.center.shared) == ["v"]


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


def test_differences_are_gradients_under_gradient_descent() -> None:
    found = []
    for commit in ("gradient", "delta"):
        variable, worker = single(commit=commit, communication_period=3)
        for value in (1.0, -0.5, 0.25):
            worker.apply([tf.fill([2], value)], [variable])
        found.append(variable.numpy())
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_strict_counts_local_and_shared_updates_together() -> None:
    for names, iterations in ((keras3, 4), (keras3_strict, 6)):
        rule = keras.optimizers.Adam(0.1)
        variable, worker = single(rule, names=names, communication_period=2)
        for _ in range(4):
            worker.apply([tf.ones([2])], [variable])
        assert int(worker.iterations) == iterations
        center = worker.custom_getter.center.optimizer
        assert int(center.iterations) == (2 if names is keras3 else 6)


def test_strict_gathers_on_top_of_the_value_before_the_init_op() -> None:
    variable, worker = single(names=keras3_strict, communication_period=1)
    worker.apply([tf.ones([2])], [variable])
    assert variable.numpy().tolist() == [1.0 - 0.5 * 2.0, 2.0 - 0.5 * 3.0]


def test_strict_shows_no_slots() -> None:
    rule = keras.optimizers.SGD(0.5, momentum=0.5)
    variable, worker = single(rule, names=keras3_strict)
    worker.apply([tf.ones([2])], [variable])
    assert worker.get_slot(variable, "momentum") is None
    assert (worker.get_slot_names(), worker.variables()) == ([], [])
    assert len(worker.variables) > 0


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


@pytest.mark.parametrize(
    ("names", "expected"), [(keras3, [1.5, 2.0]), (keras3_strict, [3.0, 4.0])]
)
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


def refused(**changes: Any) -> Any:
    given = {
        "optimizer": keras.optimizers.SGD(0.5),
        "num_worker": 1,
        "custom_getter": AGNCustomGetter("/cpu:0"),
        **changes,
    }
    return lambda: AGNOptimizer(**given)


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (refused(optimizer=3), TypeError, r"a keras\.optimizers\.Optimizer, got int"),
        (refused(custom_getter=None), TypeError, "custom_getter: expected an AGN"),
        (refused(num_worker=0), ValueError, "num_worker: expected an integer >= 1"),
        (refused(communication_period=0), ValueError, "communication_period: expected"),
        (refused(commit="sum"), ValueError, "commit: expected one of delta, gradient"),
        (
            refused(optimizer=keras.optimizers.SGD(0.5, gradient_accumulation_steps=2)),
            ValueError,
            "without gradient_accumulation_steps",
        ),
        (
            refused(
                optimizer=keras3.MixedPrecisionLossScaleOptimizer(
                    keras.optimizers.SGD(0.5), 8.0
                )
            ),
            ValueError,
            "the loss scale around AGNOptimizer",
        ),
        (
            refused(
                optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5))
            ),
            ValueError,
            "the loss scale around AGNOptimizer",
        ),
        (
            refused(
                optimizer=keras3.MixedPrecisionOptimizerWrapper(
                    keras.optimizers.SGD(0.5), 8.0
                )
            ),
            ValueError,
            "got MixedPrecisionOptimizerWrapper;",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(make: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=told):
        make()


def test_masters_around_are_refused() -> None:
    variable, worker = single()
    around = "got AGNOptimizer; AGNOptimizer shares"
    with pytest.raises(ValueError, match=around):
        keras3.MixedPrecisionOptimizerWrapper(worker, 8.0)
    given = (lambda: keras.ops.sum(variable), worker, None, lambda step: 0.5)
    with pytest.raises(ValueError, match=around):
        keras3.optimize_loss(*given, [variable], dtype="mixed")


def test_a_variable_that_the_getter_was_not_given_is_refused() -> None:
    variable, worker = single()
    stranger = keras.Variable([1.0, 1.0], name="stranger")
    for given in ([stranger], [variable, stranger]):
        with pytest.raises(KeyError, match="'stranger'; hand it to the getter"):
            worker.apply([tf.ones([2])] * len(given), given)
    assert variable.numpy().tolist() == [1.0, 2.0]
    assert int(worker.local_step) == 0


def test_workers_with_other_variables_are_refused() -> None:
    _, first = single()
    getter = AGNCustomGetter("/cpu:0", first.custom_getter.center)
    with pytest.raises(ValueError, match="'w' to be float32"):
        getter([keras.Variable([1.0, 2.0, 3.0], name="w")])


def test_an_iterator_of_pairs_is_read_once_and_kept() -> None:
    variable, worker = single()
    worker.apply_gradients(iter([(tf.ones([2]), variable)]))
    assert worker.get_slot(variable, GRAD_VARIABLE_NAME).numpy().tolist() == [1.0, 1.0]
