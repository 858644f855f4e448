"""Workers of one process: what parity does not look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from harness.parity import drivers
from lockstep import tf as lockstep_tf
from lockstep.interface import Rows
from lockstep.messages.workers.agn import GLOBAL_VARIABLE_NAME, GRAD_VARIABLE_NAME
from lockstep.tf import (
    AdamOptimizer,
    AGNCustomGetter,
    AGNOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    MultitaskOptimizerWrapper,
    strict,
)
from lockstep.tf.tests.workers.worker_pairs import single

v1 = tf.compat.v1
VALUES = {"w": np.float32([1.0, -2.0]), "t": np.float32([[0.5, 1.0], [2.0, -1.0]])}
TURNS = [0, 0, 1, 0, 1, 1, 1, 0, 0]


def gradients(seed: int = 3) -> list[list[Any]]:
    """Return a gradient for w and t at each turn: dense, sparse, zero, absent."""
    random = np.random.default_rng(seed)
    found: list[list[Any]] = []
    for k in range(len(TURNS)):
        dense = random.normal(size=2).astype(np.float32)
        rows = random.normal(size=(2, 2)).astype(np.float32)
        sparse = Rows(np.int64([1, 1]), rows, (2, 2))
        found.append([dense, sparse if k % 2 else rows])
    found[1][0] = np.zeros(2, np.float32)
    found[3][1] = None
    return found


def trajectory(driver: Any, wrap: Callable[[Any, Any, Any], Any]) -> list[list[Any]]:
    """Let two workers take turns; ``wrap(names, base, getter)`` makes an optimizer."""
    counter, team = driver.counter(), driver.workers(VALUES, 2)
    steps = []
    for worker in team:
        with worker.scope():
            rule = {"learning_rate": 0.125, "momentum": 0.5}
            base = driver.optimizer("Momentum", rule, worker.variables)
            optimizer = wrap(driver.names, base, worker.getter)

        def step(found: list[Any], worker: Any = worker, opt: Any = optimizer) -> Any:
            pairs = list(zip(found, worker.variables, strict=True))
            with worker.scope():
                return [opt.apply_gradients(pairs, global_step=counter)]

        steps.append(driver.compile(step))
    states = []
    for number, found in zip(TURNS, gradients(), strict=True):
        steps[number](found)
        worker = team[number]
        parts = [*worker.variables, *worker.centers, *worker.accumulators, counter]
        states.append([np.array(driver.read(part)) for part in parts])
    return states


def assert_same(got: list[list[Any]], expected: list[list[Any]]) -> None:
    for number, pair in enumerate(zip(got, expected, strict=True)):
        for one, other in zip(*pair, strict=True):
            np.testing.assert_array_equal(one, other, f"after step {number}")


NESTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "delta": lambda names, opt, getter: names.AGNOptimizer(
        opt, 2, getter, 2, commit="delta"
    ),
    "multitask inside": lambda names, opt, getter: names.AGNOptimizer(
        names.MultitaskOptimizerWrapper(opt), 2, getter, 2
    ),
    "loss scale around": lambda names, opt, getter: (
        names.MixedPrecisionLossScaleOptimizer(
            names.AGNOptimizer(opt, 2, getter, 2), 8.0
        )
    ),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("nest", NESTS.values(), ids=NESTS)
def test_what_parity_does_not_cover_is_the_reference_to_the_bit(
    new_driver: Callable[..., Any], nest: Callable[[Any, Any, Any], Any]
) -> None:
    reference = drivers.load("reference", strict=False)
    assert_same(trajectory(new_driver(), nest), trajectory(reference, nest))


REFERENCE_VARIABLES = """
import lockstep.tf
from harness.parity import drivers
from harness.parity.drivers.tf import make_driver
from lockstep.tf.tests.workers.test_agn import NESTS, assert_same, trajectory
oracle = drivers.load("reference", strict=False)
for nest in NESTS.values():
    driver = make_driver("v1", lockstep.tf)
    assert_same(trajectory(driver, nest), trajectory(oracle, nest))
    assert all("_ref" in v.dtype.name for v in v1.trainable_variables())
    driver.close()
print("same")
"""


def test_so_it_is_with_reference_variables(shared: Callable[..., str]) -> None:
    assert shared("v1", REFERENCE_VARIABLES) == "same"


def test_a_zero_filter_around_works_eagerly_and_is_refused_in_graphs(
    new_driver: Callable[..., Any], mode: str
) -> None:
    def nest(names: Any, opt: Any, getter: Any) -> Any:
        worker = names.AGNOptimizer(opt, 2, getter, 2)
        return names.MultitaskOptimizerWrapper(worker)

    expected = trajectory(drivers.load("reference", strict=False), nest)
    if mode == "eager":
        assert_same(trajectory(new_driver(), nest), expected)
        return
    with pytest.raises(ValueError, match="the other way round: Multitask"):
        trajectory(new_driver(), nest)


def test_slots_of_a_worker_are_local_and_those_of_the_shared_weights_global() -> None:
    with tf.Graph().as_default() as graph:
        getter = strict.AGNCustomGetter("/cpu:0")
        with v1.variable_scope("net", custom_getter=getter):
            w = v1.get_variable("w", [2])
        worker = strict.AGNOptimizer(AdamOptimizer(), 1, getter)
        op = worker.apply_gradients([(tf.ones([2]), w)])
        assert graph.get_collection(v1.GraphKeys.TRAIN_OP) == [op]

        def names(key: str) -> list[str]:
            return sorted(v.op.name for v in graph.get_collection(key))

        shared = "global_center_variable/net/w"
        # These names are those of TensorFlow 1.15, whose checkpoints have them.
        assert names(v1.GraphKeys.GLOBAL_VARIABLES) == [
            shared,
            f"{shared}/Adam",
            f"{shared}/Adam_1",
        ]
        assert names(v1.GraphKeys.LOCAL_VARIABLES) == [
            "beta1_power",
            "beta2_power",
            "grad_variable/net/w",
            "local_step",
            "net/w",
            "net/w/Adam",
            "net/w/Adam_1",
        ]
        # Old code asks the wrapped optimizer for them.
        assert worker.inner_optimizer.get_slot(getter._global_map[w], "m") is not None


@pytest.mark.parametrize("strict", [False, True], ids=["default", "strict"])
def test_slots_are_seen_through_the_wrapper_but_not_under_strict(strict: bool) -> None:
    variable, worker = single(strict=strict)
    worker.apply_gradients([(tf.ones([2]), variable)])
    if strict:
        assert worker.get_slot(variable, "m") is None
        assert worker.get_slot_names() == worker.variables() == []
        return
    getter = worker.custom_getter
    shared, gathered = getter._global_map[variable], getter._grad_map[variable]
    assert worker.get_slot(variable, GLOBAL_VARIABLE_NAME) is shared
    assert worker.get_slot(variable, GRAD_VARIABLE_NAME) is gathered
    assert worker.get_slot(shared, "m") is not worker.get_slot(variable, "m")
    own = [GRAD_VARIABLE_NAME, GLOBAL_VARIABLE_NAME]
    assert worker.get_slot_names() == ["m", "v", *own]


def test_nothing_is_traced_after_the_second_call() -> None:
    variable, worker = single()
    traces = []

    @tf.function
    def step(gradient: tf.Tensor) -> None:
        traces.append(1)
        worker.apply_gradients([(gradient, variable)])

    for k in range(6):
        step(tf.constant([1.0, 0.5 * k]))
    assert len(traces) <= 2 and int(worker.local_step) == 6


def test_a_model_of_keras_trains_eagerly_and_its_equal_names_are_kept_apart() -> None:
    model = keras.Sequential([keras.layers.Dense(2, name="d") for _ in range(1)])
    model.build((None, 2))
    twins = [tf.Variable([1.0], name="w"), tf.Variable([5.0], name="w")]
    getter = AGNCustomGetter("/cpu:0")
    getter(model)
    getter(twins)
    assert [*getter.center.shared][-2:] == ["w", "w#1"]
    worker = AGNOptimizer(GradientDescentOptimizer(0.5), 1, getter, 1)
    kernel = model.trainable_variables[0]
    before = kernel.numpy()
    worker.apply_gradients([(tf.ones([2, 2]), kernel)])
    np.testing.assert_array_equal(kernel.numpy(), before - 0.5)
    np.testing.assert_array_equal(getter._global_map[kernel], kernel)
    assert [getter._global_map[v].numpy()[0] for v in twins] == [1.0, 5.0]


def test_a_variable_scope_has_the_getter_in_eager_mode_too() -> None:
    getter = AGNCustomGetter("/cpu:0")
    with v1.variable_scope("net", custom_getter=getter):
        w = v1.get_variable("w", initializer=tf.constant([1.0, 2.0]))
    assert getter._global_map[w].name == "global_center_variable/net/w:0"
    assert getter._grad_map[w].numpy().tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("names", "start"), [(lockstep_tf, 0.0), (strict, 3.0)])
def test_parts_regularizer_and_reuse_of_a_variable(names: Any, start: float) -> None:
    def regularizer(weight: Any) -> Any:
        return tf.reduce_sum(weight)

    with tf.Graph().as_default() as graph, v1.Session() as session:
        getter = names.AGNCustomGetter("/cpu:0")
        options = {
            "initializer": tf.constant_initializer(3.0),
            "partitioner": v1.fixed_size_partitioner(2),
            "regularizer": regularizer,
        }
        for _ in range(2):
            with v1.variable_scope("", custom_getter=getter, reuse=v1.AUTO_REUSE):
                whole = v1.get_variable("w", [4], **options)
        assert [getter._global_map[part].op.name for part in whole] == [
            f"global_center_variable/w/part_{k}" for k in range(2)
        ]
        losses = graph.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)
        assert len(losses) == 2 * (3 if names is strict else 1)
        session.run(v1.local_variables_initializer())
        gathered = session.run([getter._grad_map[part] for part in whole])
        np.testing.assert_array_equal(gathered, np.full([2, 2], start))


def placed(names: Any, use_resource: bool) -> tuple[Any, Any]:
    """Build a worker for a cluster; nothing is run. Return getter and optimizer."""
    device = "/job:worker/task:1"
    place = v1.train.replica_device_setter(ps_tasks=1, worker_device=device)
    with tf.Graph().as_default(), v1.device(place):
        getter = names.AGNCustomGetter(device)
        scope = {"custom_getter": getter, "use_resource": use_resource}
        with v1.variable_scope("", **scope):
            v1.get_variable("w", [2])
        return getter, names.AGNOptimizer(GradientDescentOptimizer(0.1), 2, getter)


def test_the_count_of_steps_is_on_the_worker_but_under_strict_on_the_server() -> None:
    found = [
        placed(names, True)[1].local_step.device for names in (lockstep_tf, strict)
    ]
    assert found == ["/job:worker/task:1/device:CPU:0", "/job:ps/task:0"]


def test_reference_variables_are_refused_in_a_cluster_but_under_strict() -> None:
    with pytest.raises(ValueError, match=r"'w', because /job:ps/task:0 is another"):
        placed(lockstep_tf, False)
    placed(strict, False)


def test_a_second_instance_in_a_scope_of_a_graph_is_refused(names: Any) -> None:
    with tf.Graph().as_default():
        getter = names.AGNCustomGetter("/cpu:0")
        names.AGNOptimizer(GradientDescentOptimizer(0.1), 2, getter)
        with pytest.raises(ValueError, match="variable_scope of its own"):
            names.AGNOptimizer(GradientDescentOptimizer(0.1), 2, getter)
        with v1.variable_scope("second"):
            names.AGNOptimizer(GradientDescentOptimizer(0.1), 2, getter)


def test_a_period_of_zero_fails_when_a_step_is_taken_under_strict() -> None:
    variable, worker = single()
    worker.communication_period = 0
    with pytest.raises(tf.errors.InvalidArgumentError):
        worker.apply_gradients([(tf.ones([2]), variable)])


def test_rounds_with_several_patterns_of_gradients_share_their_slots() -> None:
    opt = MultitaskOptimizerWrapper(MomentumOptimizer(0.5, 0.5))
    getter = AGNCustomGetter("/cpu:0")
    variables = getter([tf.Variable([1.0], name="a"), tf.Variable([1.0], name="b")])
    worker = AGNOptimizer(opt, 1, getter, 1)
    for present in ([0], [1], [0, 1]):
        pairs = [
            (tf.ones([1]) if k in present else None, variable)
            for k, variable in enumerate(variables)
        ]
        worker.apply_gradients(pairs)
    slots = [getter.center.slot(getter._global_map[v], "momentum") for v in variables]
    assert [slot.numpy().tolist() for slot in slots] == [[1.5], [1.5]]


@pytest.mark.parametrize(
    ("names", "expected"), [(lockstep_tf, [1.5, 2.0]), (strict, [3.0, 4.0])]
)
def test_row_clipping_inside_cuts_the_shared_rows_but_not_under_strict(
    names: Any, expected: list[float]
) -> None:
    weight = tf.Variable([3.0, 4.0], name="w")
    getter = names.AGNCustomGetter("/cpu:0")
    getter([weight])
    base = GradientDescentOptimizer(1.0)
    rows = names.VariableClippingOptimizer(base, {weight.ref(): [0]}, 2.5)
    worker = names.AGNOptimizer(rows, 1, getter, communication_period=1)
    worker.get_init_op(0)
    worker.apply_gradients([(tf.zeros([2]), weight)])
    assert weight.numpy().tolist() == expected
