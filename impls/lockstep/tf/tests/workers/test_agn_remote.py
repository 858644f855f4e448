"""Workers of TensorFlow whose center is behind the boundary of a process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import tf as lockstep_tf
from lockstep.errors import OutOfRangeError, UnsupportedError
from lockstep.ray.tests.local_host import LocalHost
from lockstep.tf import (
    AdamOptimizer,
    AGNCustomGetter,
    AGNOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    strict,
)
from lockstep.tf.tests.workers.remote_team import Team
from lockstep.tf.workers.remote import RemoteCenter
from lockstep.tf.workers.served_weights import powers_of

v1 = tf.compat.v1
ORDER = [0, 1, 1, 2, 0, 2, 0, 0, 1, 1, 2, 2, 2, 2]

RULES: dict[str, tuple[Callable[[], Any], Any]] = {
    "gradient descent": (lambda: GradientDescentOptimizer(0.1), lockstep_tf),
    "momentum": (lambda: MomentumOptimizer(0.1, 0.9, use_nesterov=True), lockstep_tf),
    "Adam": (lambda: AdamOptimizer(0.01), lockstep_tf),
    "AdamW": (lambda: lockstep_tf.AdamWOptimizer(0.1, 0.01), lockstep_tf),
    "RMSProp": (lambda: lockstep_tf.RMSPropOptimizer(0.01), lockstep_tf),
    "FTRL": (lambda: lockstep_tf.FtrlOptimizer(0.1), lockstep_tf),
    "NovoGrad": (lambda: lockstep_tf.NovoGrad(0.01), lockstep_tf),
    "TensorFlow's Adagrad": (lambda: v1.train.AdagradOptimizer(0.1), lockstep_tf),
    "strict Adam": (lambda: strict.AdamOptimizer(0.01), strict),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", RULES)
def test_the_center_moves_as_that_of_one_process(name: str, tmp_path: Path) -> None:
    """A crash with a checkpoint of each round and a lost reply change no bit."""
    make, names = RULES[name]
    host = LocalHost(tmp_path)
    ours = Team(make, host, names=names)
    theirs = Team(make, None, names=names)
    start = theirs.shared()
    for turn, number in enumerate(ORDER):
        if turn == 6:
            host.lost = 1
        ours.step(number, turn)
        theirs.step(number, turn)
        if turn == 9:
            host.crash()
    assert ours.shared() == theirs.shared() != start
    for number in range(3):
        assert ours.bits(number) == theirs.bits(number)
    assert host.center is not None
    assert host.center.counters.repeated == 1
    assert host.center.counters.rounds == 7


def test_a_wrapper_around_moves_the_center_as_in_one_process(tmp_path: Path) -> None:
    """A gradient of zeros is absent, so its variable is neither pushed nor pulled."""
    host = LocalHost(tmp_path)
    teams = [Team(lambda: AdamOptimizer(0.1), h, 2) for h in (host, None)]
    for team in teams:
        around = [lockstep_tf.MultitaskOptimizerWrapper(w) for w in team.workers]
        for turn in range(8):
            weight, bias = team.variables[turn % 2]
            gradient = np.random.default_rng(turn).normal(size=weight.shape)
            pairs = [(tf.constant(np.float32(gradient)), weight)]
            pairs += [(tf.constant(float(turn % 3)), bias)]
            around[turn % 2].apply_gradients(pairs)
    ours, theirs = teams
    assert ours.shared() == theirs.shared()
    assert [ours.bits(k) for k in range(2)] == [theirs.bits(k) for k in range(2)]
    assert host.center is not None
    assert host.center.counters.rounds == 4


def test_loss_scaling_around_leaves_out_a_step_here_and_there(tmp_path: Path) -> None:
    host = LocalHost(tmp_path)
    teams = [Team(lambda: AdamOptimizer(0.1), h, 1) for h in (host, None)]
    for team in teams:
        (worker,), (variables,) = team.workers, team.variables
        around = lockstep_tf.MixedPrecisionLossScaleOptimizer(worker, "dynamic")
        for turn in range(5):
            number = np.inf if turn == 1 else float(turn)
            around.apply_gradients([(tf.fill(v.shape, number), v) for v in variables])
    ours, theirs = teams
    assert ours.shared() == theirs.shared()
    assert host.center is not None
    assert (host.center.counters.rounds, host.center.counters.nonfinite) == (2, 0)


def test_a_rate_that_changes_is_followed(tmp_path: Path) -> None:
    rate, variable = tf.Variable(0.5), tf.Variable([1.0])
    getter = AGNCustomGetter("/cpu:0", RemoteCenter(LocalHost(tmp_path)))
    getter([("w", variable)])
    rule = GradientDescentOptimizer(lambda: rate)
    worker = AGNOptimizer(rule, 1, getter, 1)
    for expected in (0.5, 0.25, 0.125):
        rate.assign(expected)
        before = variable.numpy()
        worker.apply_gradients([(tf.ones([1]), variable)])
        assert (before - variable.numpy()).tolist() == [expected]


def test_a_late_joiner_starts_from_the_center_as_it_is(tmp_path: Path) -> None:
    host = LocalHost(tmp_path)
    team = Team(lambda: AdamOptimizer(0.1), host, 1)
    for seed in range(4):
        team.step(0, seed)
    late = Team(lambda: AdamOptimizer(0.1), host, 1)
    assert late.bits(0) == team.shared()
    assert host.center is not None
    assert host.center.counters.rounds == 2


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: GradientDescentOptimizer(0.1), "with GradientDescentOptimizer, got o"),
        (
            lambda: lockstep_tf.RMSPropOptimizer(0.1, centered=True),
            "with mg of w float32 .*, got one with momentum of w float32",
        ),
    ],
)
def test_a_checkpoint_of_another_optimizer_is_refused(
    make: Callable[[], Any], told: str, tmp_path: Path
) -> None:
    team = Team(lambda: lockstep_tf.RMSPropOptimizer(0.1), LocalHost(tmp_path), 1)
    team.step(0, 0), team.step(0, 1)
    host = LocalHost(tmp_path)
    with pytest.raises(UnsupportedError, match=told):
        Team(make, host, 1)
    assert not host.exists()
    again = Team(lambda: lockstep_tf.RMSPropOptimizer(0.1), LocalHost(tmp_path), 1)
    assert again.bits(0) == team.shared()


def with_hook() -> Any:
    rule = GradientDescentOptimizer(0.1)
    rule.hook = lambda gradient: gradient
    return rule


def of_a_script() -> Any:
    class Own(GradientDescentOptimizer):
        """An optimizer that no module has."""

    return Own(0.1)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (with_hook, "got GradientDescentOptimizer, whose hook is a function; use comm"),
        (of_a_script, r"can import, got of_a_script\S+Own; define it in a module"),
    ],
)
def test_what_no_other_process_can_make_is_refused(
    make: Callable[[], Any], told: str, tmp_path: Path
) -> None:
    host = LocalHost(tmp_path)
    with pytest.raises(UnsupportedError, match=told):
        Team(make, host, 1)
    assert not host.exists()


def test_a_push_with_nan_is_refused_and_nothing_has_moved(tmp_path: Path) -> None:
    team = Team(lambda: AdamOptimizer(0.1), LocalHost(tmp_path), 1, period=1)
    before = team.shared()
    pairs = [(tf.fill(v.shape, np.nan), v) for v in team.variables[0]]
    with pytest.raises(OutOfRangeError, match=r"inf or NaN for .*; nothing has moved"):
        team.workers[0].apply_gradients(pairs)
    assert team.shared() == before
    team.workers[0].get_init_op(0)
    team.step(0, 0)
    assert team.shared() != before


@pytest.mark.parametrize("lost", [0, 1])
def test_powers_of_beta_do_not_advance_for_a_round_that_is_left_out(
    lost: int, tmp_path: Path
) -> None:
    """They are those of an Adam that took the local steps, and no step of a center."""
    host = LocalHost(tmp_path, on_nonfinite="drop")
    team = Team(lambda: AdamOptimizer(0.1), host, 1)
    (worker,), start = team.workers, team.shared()
    host.lost = lost
    alone = AdamOptimizer(0.1)
    for number in (np.inf, 1.0):
        pairs = [(tf.fill(v.shape, number), v) for v in team.variables[0]]
        worker.apply_gradients(pairs)
        alone.apply_gradients([(tf.constant(1.0), tf.Variable(0.0))])
    assert team.bits(0) == team.shared() == start
    assert powers_of(worker.base_optimizer) == powers_of(alone)
    for seed in range(2):
        team.step(0, seed)
    for _ in range(3):
        alone.apply_gradients([(tf.constant(1.0), tf.Variable(0.0))])
    assert powers_of(worker.base_optimizer) == powers_of(alone)


def test_shared_slots_are_with_the_center_alone(tmp_path: Path) -> None:
    team = Team(lambda: MomentumOptimizer(0.1, 0.9), LocalHost(tmp_path), 1)
    team.step(0, 0), team.step(0, 1)
    worker, (weight, _) = team.workers[0], team.variables[0]
    shared = worker.get_slot(weight, worker.GLOBAL_VARIABLE_NAME)
    assert worker.get_slot(weight, "momentum") is not None
    assert worker.get_slot(shared, "momentum") is None
