"""Laws of row clipping, in every mode that can share a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import tf as lockstep_tf
from lockstep.interface import NO_EAGER_STEP, Rows
from lockstep.tf import strict as lockstep_strict
from lockstep.tf.shared.clipping.clip_rows import clip_rows
from lockstep.tf.tests.clipping.models import DENSE, TABLE, VALUES, ZERO, both, clipping
from lockstep.tf.tests.trajectory import (
    TOLERANCE,
    assert_close,
    assert_same_bits,
    draw,
    replay,
    replay_listed,
    rows,
)

v1 = tf.compat.v1
Hosts = Callable[..., Any]
TWICE = rows([2, 0, 2, 2], [[1, -2], [3, 0.5], [-0.25, 4], [0.5, 1]], 4, 2)
NO_ROWS = rows([], [], 4, 2)
MANY = draw(6, [(3,), (6, 37)], steps=2)


def dense_steps(*steps: int) -> list[list[Any]]:
    return [DENSE[step] for step in steps]


def sparse_steps(*tables: Rows) -> list[list[Any]]:
    pairs = zip(DENSE, tables, strict=False)
    return [[dense[0], table, dense[2]] for dense, table in pairs]


CASES: dict[str, tuple[list[Any], float, list[list[Any]]]] = {
    "rows": ([[0], [1], [1, 2]], 1.0, dense_steps(0, 1, 2)),
    "other axes": ([[], [0], [0]], 1.25, dense_steps(0, 1)),
    "axes apart": ([None, [0, 1], [0, 2]], 1.25, dense_steps(0, 1)),
    "negative axes": ([[-1], (-2, 1), [-3]], 1.25, dense_steps(0, 1)),
    "not listed": ([None, [1], None], 0.5, dense_steps(0, 1)),
    "absent": (
        [[0], [1], [2]],
        0.5,
        [[None, DENSE[0][1], None], [DENSE[1][0], None, ZERO[2]]],
    ),
    "zero gradients": ([[0], [1], [2]], 0.5, [ZERO, DENSE[1], ZERO]),
    "sparse": ([[0], [1], [2]], 0.75, sparse_steps(TABLE, TABLE)),
    "sparse, twice": ([[0], [1], [2]], 0.75, sparse_steps(TWICE, TWICE)),
    "sparse, no axes": ([[0], [], [2]], 0.75, sparse_steps(TABLE, TWICE)),
    "sparse, negative": ([[0], [-1], [2]], 0.75, sparse_steps(TABLE, TWICE)),
}


# Momentum is the rule of gradient descent with a slot.
@pytest.mark.sample(10)
@pytest.mark.parametrize(
    "rule",
    [pytest.param("GradientDescent", marks=pytest.mark.soak), "Momentum", "Adam"],
)
@pytest.mark.parametrize("case", CASES)
def test_every_step_equals_the_reference(
    new_driver: Hosts, names: Any, case: str, rule: str
) -> None:
    axes, max_norm, steps = CASES[case]
    got, expected = both(
        new_driver, names, rule, lambda n: clipping(n, axes, max_norm), VALUES, steps
    )
    # Where axes are apart TensorFlow's kernel adds the elements in another order.
    within = max(TOLERANCE.get(rule, 0), case == "axes apart")
    assert_close(got, expected, within=within)


@pytest.mark.filterwarnings("ignore:VariableClippingOptimizer:UserWarning")
@pytest.mark.parametrize("axes", [[0], [0, 1], [-2]])
def test_sparse_gradients_and_dimension_0_equal_the_reference(
    new_driver: Hosts, names: Any, axes: list[int]
) -> None:
    wrap = [None, axes, None]
    steps = sparse_steps(TABLE, TWICE)
    got, expected = both(
        new_driver, names, "Momentum", lambda n: clipping(n, wrap), VALUES, steps
    )
    assert_close(got, expected, within=0)


def test_dimension_0_is_warned_about(new_driver: Hosts, names: Any) -> None:
    steps = sparse_steps(TABLE)
    wrap = clipping(names, [None, [0], None])
    with pytest.warns(UserWarning, match="the whole variable is read and clipped"):
        replay_listed(new_driver(names), "Momentum", wrap, VALUES, steps)


def test_long_rows_equal_the_reference(new_driver: Hosts, names: Any) -> None:
    """Sums of more elements than a kernel adds at once."""
    got, expected = both(
        new_driver,
        names,
        "GradientDescent",
        lambda n: clipping(n, [[0], [1]], 2.0),
        MANY[0],
        MANY[1:],
    )
    assert_close(got, expected, within=0)


def test_half_precision_equals_the_reference(new_driver: Hosts, names: Any) -> None:
    table = [[300, 400], [3, 4], [150, 150], [0.1, 0.2]]
    half = [np.array(table, np.float16)]
    steps = [[np.full((4, 2), 0.5, np.float16)], [np.zeros((4, 2), np.float16)]]
    got, expected = both(
        new_driver,
        names,
        "GradientDescent",
        lambda n: clipping(n, [[1]], 2.0),
        half,
        steps,
    )
    assert_close(got, expected, within=0)
    survives = np.abs(got[-1].variables[0][0]).max() > 1
    assert survives == (names is lockstep_tf), "the original loses the first row"


def test_the_default_is_the_original_above_the_norm(new_driver: Hosts) -> None:
    axes, steps = [[0], [1], [1, 2]], [*DENSE[:2], *sparse_steps(TABLE)]
    default = clipping(lockstep_tf, axes, 0.01)
    strict = clipping(lockstep_strict, axes, 0.01)
    # Rows 400 times too long: half a last digit of these, which strict subtracts from,
    # is 200 of a clipped row, and a step adds to that.
    assert_close(
        replay_listed(new_driver(), "Momentum", default, VALUES, steps),
        replay_listed(new_driver(lockstep_strict), "Momentum", strict, VALUES, steps),
        within=1000,
    )


def test_below_the_norm_it_is_the_bare_optimizer_to_the_bit(new_driver: Hosts) -> None:
    steps = [*DENSE[:2], *sparse_steps(TWICE)]
    wrap = clipping(lockstep_tf, [[0], [1], [1, 2]], 100.0 / 3)
    got = replay_listed(new_driver(), "Adam", wrap, VALUES, steps)
    assert_same_bits(got, replay(new_driver(), "Adam", lambda opt: opt, VALUES, steps))


def test_rows_that_stay_keep_their_bits() -> None:
    odd = np.float32([[1e-40, -0.0], [-1e-42, 0.3], [np.inf, 1], [np.nan, 1], [3, 4]])
    clipped, too_large = clip_rows(tf.constant(odd), [1], 1.0 / 3)
    assert clipped[:2].numpy().tobytes() == odd[:2].tobytes()
    assert too_large[:, 0].numpy().tolist() == [False, False, True, True, True]
    assert np.isnan(clipped[2, 0]) and clipped[2, 1] == 0
    assert np.isnan(clipped[3]).all()
    assert np.linalg.norm(clipped[4]) == pytest.approx(1 / 3)


def test_no_rows_clip_nothing(new_driver: Hosts, names: Any) -> None:
    wrap = clipping(names, [[1]], 0.1)
    got = replay_listed(new_driver(names), "Momentum", wrap, VALUES[1:2], [[NO_ROWS]])
    assert got[0].variables[0].tobytes() == VALUES[1].tobytes()
    assert got[0].global_step == 1


def test_unnamed_rows_move_as_without_clipping(new_driver: Hosts, names: Any) -> None:
    steps = [[rows([1, 3], np.ones((2, 2)), 4, 2)], [TABLE]]
    values = [VALUES[1] * 10]
    bare = replay(new_driver(names), "Adam", lambda opt: opt, values, steps[:1])
    wrap = clipping(names, [[1]])
    got = replay_listed(new_driver(names), "Adam", wrap, values, steps)
    assert got[0].variables[0][::2].tobytes() == bare[0].variables[0][::2].tobytes()
    norms = np.linalg.norm(got[0].variables[0], axis=1)
    assert norms[[1, 3]] == pytest.approx([1, 1])
    assert (np.linalg.norm(got[1].variables[0], axis=1)[[0, 2]] < 1.0001).all()


@pytest.mark.parametrize(
    ("names", "left"), [(lockstep_tf, 1.0), (lockstep_strict, -5.0)]
)
def test_a_row_named_twice_is_clipped(
    new_driver: Hosts, names: Any, left: float
) -> None:
    gradient = rows([1, 1, 1], np.zeros((3, 2)), 2, 2)
    wrap = clipping(names, [[1]], 1.0)
    values = [np.float32([[9, 9], [4, 0]])]
    got = replay_listed(new_driver(names), "Momentum", wrap, values, [[gradient]])
    assert got[0].variables[0].tolist() == [[9, 9], [left, 0]]


def test_strict_clips_nothing_after_a_one_shot_iterator(
    new_driver: Hosts, names: Any
) -> None:
    driver = new_driver(names)
    w = driver.variable("w", np.float32([3, 4]))
    opt = clipping(names, [[0]])(names.GradientDescentOptimizer(0.5), [w.ref()])
    outer = clipping(names, [[0]])(opt, [w.ref()])
    driver.compile(lambda g: outer.apply_gradients(iter([(g[0], w)])))(
        [np.float32([0, 0])]
    )
    norm = 1.0 if names is lockstep_tf else 5.0
    assert np.linalg.norm(driver.read(w)) == pytest.approx(norm)


def test_a_norm_may_come_as_a_tensor(names: Any) -> None:
    w = tf.Variable([3.0, 4.0])
    # Strict takes, as the original, what has the dtype of the variable.
    limit = tf.Variable(1.0, dtype=tf.float64 if names is lockstep_tf else tf.float32)
    opt = clipping(names, [[0]], limit)(names.GradientDescentOptimizer(0.5), [w.ref()])
    opt.apply_gradients([(tf.zeros([2]), w)])
    assert np.linalg.norm(w) == pytest.approx(1)


def test_it_is_an_optimizer_that_delegates(names: Any) -> None:
    w = tf.Variable([[3.0, 4.0]], name="w")
    base = names.MomentumOptimizer(0.25, momentum=0.5)
    opt = names.VariableClippingOptimizer(base, {w.ref(): [1]}, 1.0, True, True, "Rows")
    opt.minimize(lambda: tf.reduce_sum(w**2), var_list=[w])
    assert isinstance(opt, v1.train.Optimizer)
    assert opt.get_name() == "Rows"
    assert opt.get_slot_names() == ["momentum"]
    assert opt.get_slot(w.ref(), "momentum").numpy().tolist() == [[6.0, 8.0]]
    slots = [base.get_slot(w, "momentum")] if names is lockstep_tf else []
    assert opt.variables() == slots


def test_an_eager_step_counts_the_rows_it_clipped(names: Any) -> None:
    a, b = tf.Variable([[3.0, 4], [0, 0.5]], name="a"), tf.Variable(1.0, name="b")
    base = names.GradientDescentOptimizer(1.0)
    opt = names.VariableClippingOptimizer(base, {a.ref(): [1]}, 1.0)
    assert opt.last_step == NO_EAGER_STEP
    opt.apply_gradients([(tf.zeros([2, 2]), a), (None, b)])
    assert opt.last_step.applied
    assert opt.last_step.skipped == ("b",)
    assert opt.last_step.reason == "of 2 gradients 1 absent; 1 of 2 rows clipped"


def test_keras_variables_are_taken_by_their_value(names: Any) -> None:
    keras = pytest.importorskip("keras", reason="needs Keras")
    w = keras.Variable(np.float32([3, 4]), name="w")
    base = names.GradientDescentOptimizer(0.5)
    opt = names.VariableClippingOptimizer(base, {w.value.ref(): [0]}, 1.0)
    opt.apply_gradients([(tf.zeros([2]), w)])
    assert np.linalg.norm(w.numpy()) == pytest.approx(1)
