"""Workers of one process that share a center: what the recorded cases do not cover."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from harness.parity import drivers
from lockstep import tf as lockstep_tf
from lockstep.errors import (
    GetterError,
    NotAnOptimizerError,
    OutOfRangeError,
    UnknownNameError,
    UnsupportedError,
)
from lockstep.interface import Rows
from lockstep.tests.registering import assert_second_waits
from lockstep.tf import (
    AdamOptimizer,
    AGNCustomGetter,
    AGNOptimizer,
    GradientDescentOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MomentumOptimizer,
    MultitaskOptimizerWrapper,
    strict,
)
from lockstep.tf.tests.agn_teams import Team, bits, single

v1 = tf.compat.v1
SHARED, GATHERED = AGNOptimizer.GLOBAL_VARIABLE_NAME, AGNOptimizer.GRAD_VARIABLE_NAME
VALUES = {"w": np.float32([1.0, -2.0]), "t": np.float32([[0.5, 1.0], [2.0, -1.0]])}
TURNS = [0, 0, 1, 0, 1, 1, 1, 0, 0]
BOTH = pytest.mark.parametrize(
    "names", [lockstep_tf, strict], ids=["default", "strict"]
)

# Rounds


def gradients() -> list[list[Any]]:
    """Return a gradient for w and t at each turn: dense, sparse, zero, absent."""
    random = np.random.default_rng(3)
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
        states.append([np.array(driver.read(part)).tolist() for part in parts])
    return states


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


def on_reference(nest: Callable[[Any, Any, Any], Any]) -> list[list[Any]]:
    return trajectory(drivers.load("reference", strict=False), nest)


@pytest.mark.sample(1)
@pytest.mark.parametrize("nest", NESTS.values(), ids=NESTS)
def test_the_default_is_the_references(
    new_driver: Callable[..., Any], nest: Callable[[Any, Any, Any], Any]
) -> None:
    assert trajectory(new_driver(), nest) == on_reference(nest)


REFERENCE_VARIABLES = """
import lockstep.tf
from harness.parity.drivers.tf import make_driver
from lockstep.tf.tests.test_agn import NESTS, on_reference, trajectory
for nest in NESTS.values():
    driver = make_driver("v1", lockstep.tf)
    assert trajectory(driver, nest) == on_reference(nest)
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

    if mode == "eager":
        assert trajectory(new_driver(), nest) == on_reference(nest)
        return
    with pytest.raises(UnsupportedError):
        trajectory(new_driver(), nest)


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
    slots = [worker.get_slot(getter._global_map[v], "momentum") for v in variables]
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


def test_an_eager_push_waits_for_that_of_another_thread() -> None:
    team = Team(lambda: GradientDescentOptimizer(0.5), period=1, commit="delta")
    thread = threading.Thread(target=team.step, args=(0, 0))
    with team.workers[0].custom_getter.center.lock:
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        before = team.shared()
    thread.join(60)
    assert team.shared() != before


# Variables and their names


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

        # These names are those of TensorFlow 1.15, whose checkpoints have them.
        assert names(v1.GraphKeys.GLOBAL_VARIABLES) == [
            "global_center_variable/net/w",
            "global_center_variable/net/w/Adam",
            "global_center_variable/net/w/Adam_1",
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


def test_slots_are_seen_through_the_wrapper_but_not_under_strict() -> None:
    variable, worker = single()
    worker.apply_gradients([(tf.ones([2]), variable)])
    getter = worker.custom_getter
    shared, gathered = getter._global_map[variable], getter._grad_map[variable]
    assert worker.get_slot(variable, SHARED) is shared
    assert worker.get_slot(variable, GATHERED) is gathered
    assert worker.get_slot(shared, "m") is not worker.get_slot(variable, "m")
    assert worker.get_slot_names() == ["m", "v", GATHERED, SHARED]
    variable, worker = single(strict)
    worker.apply_gradients([(tf.ones([2]), variable)])
    assert worker.get_slot(variable, "m") is None
    assert worker.get_slot_names() == worker.variables() == []


@pytest.mark.parametrize(("names", "start"), [(lockstep_tf, 0.0), (strict, 3.0)])
def test_regularizer_and_reuse_of_a_variable(names: Any, start: float) -> None:
    with tf.Graph().as_default() as graph, v1.Session() as session:
        getter = names.AGNCustomGetter("/cpu:0")
        options = {
            "initializer": tf.constant_initializer(3.0),
            "regularizer": tf.reduce_sum,
        }
        for _ in range(2):
            with v1.variable_scope("", custom_getter=getter, reuse=v1.AUTO_REUSE):
                whole = v1.get_variable("w", [2], **options)
        losses = graph.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)
        assert len(losses) == (3 if names is strict else 1)
        session.run(v1.local_variables_initializer())
        gathered = session.run(getter._grad_map[whole])
        np.testing.assert_array_equal(gathered, np.full([2], start))


def test_a_variable_scope_has_the_getter_in_eager_mode_too() -> None:
    getter = AGNCustomGetter("/cpu:0")
    with v1.variable_scope("net", custom_getter=getter):
        w = v1.get_variable("w", initializer=tf.constant([1.0, 2.0]))
    assert getter._global_map[w].name == "global_center_variable/net/w:0"
    assert getter._grad_map[w].numpy().tolist() == [0.0, 0.0]


def test_a_model_of_keras_trains_eagerly_and_its_equal_names_are_kept_apart() -> None:
    model = keras.Sequential([keras.layers.Dense(2, name="d")])
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


def placed(names: Any, use_resource: bool) -> Any:
    """Build a worker for a cluster; nothing is run. Return its optimizer."""
    device = "/job:worker/task:1"
    place = v1.train.replica_device_setter(ps_tasks=1, worker_device=device)
    with tf.Graph().as_default(), v1.device(place):
        getter = names.AGNCustomGetter(device)
        scope = {"custom_getter": getter, "use_resource": use_resource}
        with v1.variable_scope("", **scope):
            v1.get_variable("w", [2])
        return names.AGNOptimizer(GradientDescentOptimizer(0.1), 2, getter)


def test_the_count_of_steps_is_on_the_worker_but_under_strict_on_the_server() -> None:
    devices = [placed(names, True).local_step.device for names in (lockstep_tf, strict)]
    assert devices == ["/job:worker/task:1/device:CPU:0", "/job:ps/task:0"]


def test_reference_variables_are_refused_in_a_cluster_but_under_strict() -> None:
    with pytest.raises(UnsupportedError):
        placed(lockstep_tf, False)
    placed(strict, False)


# The getter


def weight(name: str = "w", value: Any = (1.0, 2.0)) -> tf.Variable:
    return tf.Variable(np.float32(value), name=name)


def filled(*variables: Any) -> AGNCustomGetter:
    """Return a getter that filled a center, with w if there is nothing else."""
    getter = AGNCustomGetter("/cpu:0")
    getter(list(variables) or [weight()])
    return getter


def beside(first: AGNCustomGetter) -> AGNCustomGetter:
    return AGNCustomGetter("/cpu:0", center=first.center)


def test_a_worker_waits_until_another_has_registered_all_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = AGNCustomGetter("/cpu:0")
    variables = lambda: [weight("v"), weight("w")]  # noqa: E731
    assert_second_waits(first, beside(first), variables, monkeypatch)


@pytest.mark.parametrize("misfit", [("c", (1.0, 2.0)), ("b", (1.0,))])
def test_nothing_joins_if_one_of_them_does_not_fit(misfit: Any) -> None:
    first = filled(weight("a"), weight("b"))
    second = beside(first)
    with pytest.raises(UnsupportedError):
        second([weight("a"), weight(*misfit)])
    assert not len(second._global_map)
    own = weight("a")
    second([own])
    assert second._global_map[own] is first.center.shared["a"]


def test_the_worker_that_filled_the_center_adds_and_others_follow() -> None:
    first, later = filled(), weight("later")
    second = beside(first)
    with pytest.raises(UnsupportedError):
        second([later])
    first([weight("later")])
    second([later])
    assert second._global_map[later] is first.center.shared["later"]


def test_scopes_of_a_graph_with_other_names_do_not_join_in_silence() -> None:
    with tf.Graph().as_default():
        first = AGNCustomGetter("/cpu:0")
        with v1.variable_scope("one", custom_getter=first):
            v1.get_variable("w", [2])
        with v1.variable_scope("two", custom_getter=beside(first)):
            with pytest.raises(UnsupportedError):
                v1.get_variable("w", [2])
    assert list(first.center.shared) == ["one/w"]


WRONG_VARIABLES: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "a word": lambda: "w",
    "a dict": lambda: {"w": weight()},
    "a tensor": lambda: tf.ones([2]),
    "no variables": lambda: [None],
}


@pytest.mark.parametrize("name", WRONG_VARIABLES)
def test_the_getter_takes_only_variables(name: str) -> None:
    with pytest.raises(GetterError):
        AGNCustomGetter("/cpu:0")(WRONG_VARIABLES[name]())


def test_the_getter_takes_only_centers_and_makes_the_variables_of_a_graph() -> None:
    for center in (filled(), "c"):
        with pytest.raises(GetterError):
            AGNCustomGetter("/cpu:0", center=center)
    with tf.Graph().as_default(), pytest.raises(UnsupportedError):
        AGNCustomGetter("/cpu:0")([v1.Variable([1.0])])


# Refusals


@pytest.mark.parametrize(
    ("argument", "error"),
    [
        ({"optimizer": keras.optimizers.SGD}, NotAnOptimizerError),
        ({"custom_getter": None}, GetterError),
        ({"num_worker": 0}, OutOfRangeError),
        ({"communication_period": 0}, OutOfRangeError),
        ({"communication_period": 2.5}, OutOfRangeError),
        ({"commit": "sum"}, UnknownNameError),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(argument: Any, error: type[Exception]) -> None:
    arguments = {"optimizer": GradientDescentOptimizer(0.1), "custom_getter": filled()}
    with pytest.raises(error):
        AGNOptimizer(**{"num_worker": 1, **arguments, **argument})


def test_scales_and_masters_are_refused_inside_and_masters_around() -> None:
    variable, worker = single()
    for wrapper in (MixedPrecisionLossScaleOptimizer, MixedPrecisionOptimizerWrapper):
        with pytest.raises(UnsupportedError):
            inner = wrapper(GradientDescentOptimizer(0.5), 8.0)
            AGNOptimizer(inner, 1, worker.custom_getter)
    with pytest.raises(UnsupportedError):
        AGNOptimizer(worker, 1, worker.custom_getter)
    with pytest.raises(UnsupportedError):
        MixedPrecisionOptimizerWrapper(worker, 8.0)
    given = (lambda: tf.reduce_sum(variable), worker, None, lambda step: 0.5)
    with pytest.raises(UnsupportedError):
        lockstep_tf.optimize_loss(*given, [variable], dtype="mixed")


def test_nothing_has_changed_when_a_step_is_refused() -> None:
    variable, worker = single()
    before = bits([variable, *worker.variables()])
    pair = (tf.ones([2]), variable)
    for given, options, error in [
        ([pair, (tf.ones([1]), tf.Variable([1.0]))], {}, KeyError),
        ([pair], {"global_step": tf.constant(0)}, TypeError),
        ([(tf.ones([3]), variable)], {}, ValueError),
    ]:
        with pytest.raises(error):
            worker.apply_gradients(given, **options)
    assert bits([variable, *worker.variables()]) == before


@BOTH
def test_under_parameter_servers_it_is_refused(
    names: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All workers would train one copy of the weights."""
    variable, worker = single(names)
    kind = tf.distribute.ParameterServerStrategy
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: kind.__new__(kind))
    # A coordinator calls functions outside of strategy.run.
    monkeypatch.setattr(tf.distribute, "in_cross_replica_context", lambda: True)
    with pytest.raises(UnsupportedError):
        single(names)
    with pytest.raises(UnsupportedError):
        worker.apply_gradients([(tf.ones([2]), variable)])
    assert variable.numpy().tolist() == [1.0, -2.0]


# State


# The moment of NovoGrad has another shape than its variable.
@pytest.mark.parametrize(
    "make_rule", [AdamOptimizer, lambda: lockstep_tf.NovoGrad(0.1)]
)
@pytest.mark.parametrize("stop", [1, 2, 5])
def test_a_checkpoint_of_several_workers_goes_on_to_the_bit(
    tmp_path: Path, stop: int, make_rule: Callable[[], Any]
) -> None:
    def make() -> tuple[Team, tf.Variable, tf.train.Checkpoint]:
        team = Team(make_rule)
        counter = tf.Variable(0, dtype=tf.int64)
        saved = {"variables": team.variables, "team": team.workers, "counter": counter}
        return team, counter, tf.train.Checkpoint(**saved)

    def go(team: Team, counter: tf.Variable, turns: range) -> list[bytes]:
        for k in turns:
            # The second worker pushes first: slots belong to no worker.
            team.step(1 - k // 2 % 2, k, global_step=counter)
        state = [v for worker in team.workers for v in worker.variables()]
        return bits([*state, *team.variables[0], *team.variables[1], counter])

    team, counter, checkpoint = make()
    go(team, counter, range(stop))
    path = checkpoint.write(str(tmp_path / "stopped"))
    whole = go(team, counter, range(stop, 9))
    again, other_counter, restored = make()
    restored.read(path).assert_existing_objects_matched()
    assert go(again, other_counter, range(stop, 9)) == whole
    # Powers, slots, accumulators, local step, shared weights and their slots.
    powers = 2 if make_rule is AdamOptimizer else 0
    assert len(whole) == 2 * (powers + 4 + 2 + 1 + 2 + 4) + 2 * 2 + 1


def test_a_saver_of_variables_goes_on_to_the_bit(tmp_path: Path) -> None:
    def train(first: int, last: int, save: int | None = None) -> list[bytes]:
        with tf.Graph().as_default(), v1.Session() as session:
            getter = AGNCustomGetter("/cpu:0")
            with v1.variable_scope("", custom_getter=getter):
                w = v1.get_variable("w", initializer=tf.constant([1.0, -2.0]))
            x = v1.placeholder(tf.float32, [2])
            step = v1.train.get_or_create_global_step()
            worker = AGNOptimizer(AdamOptimizer(0.1), 1, getter, 3)
            op = worker.apply_gradients([(x, w)], global_step=step)
            state = [w, step, *worker.variables()]
            saver = v1.train.Saver(state)
            session.run(v1.global_variables_initializer())
            session.run(v1.local_variables_initializer())
            if first:
                saver.restore(session, str(tmp_path / "saved"))
            for k in range(first, last):
                session.run(op, {x: [0.5 - k, 0.25 * k]})
                if k == save:
                    saver.save(session, str(tmp_path / "saved"))
            return [value.tobytes() for value in session.run(state)]

    whole = train(0, 8, save=3)
    assert train(4, 8) == whole


def test_workers_of_a_center_have_one_commit() -> None:
    first, second = (tf.Variable([1.0], name="w") for _ in range(2))
    getter = lockstep_tf.AGNCustomGetter("/cpu:0")
    getter([first])
    lockstep_tf.AGNOptimizer(
        lockstep_tf.GradientDescentOptimizer(0.5), 2, getter, commit="delta"
    )
    other = lockstep_tf.AGNCustomGetter("/cpu:0", center=getter.center)
    other([second])
    with pytest.raises(UnsupportedError, match="commit='delta'"):
        lockstep_tf.AGNOptimizer(lockstep_tf.GradientDescentOptimizer(0.5), 2, other)
