"""Workers whose center is behind the boundary of a process."""

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
    RMSPropOptimizer,
    strict,
)
from lockstep.tf.agn_center import RemoteCenter
from lockstep.tf.tests.agn_teams import Team

v1 = tf.compat.v1
multitask = lockstep_tf.MultitaskOptimizerWrapper
rows = lockstep_tf.VariableClippingOptimizer

ORDER = [0, 1, 1, 2, 0, 2, 0, 0, 1, 1, 2, 2, 2, 2]
# Steps whose gradients of w or b are zero, so that of two rounds a mean is zero, or
# both are.
SCALES = {4: (0, 1), 5: (0, 1), 6: (0, 0), 7: (0, 0), 10: (1, 0), 11: (1, 0)}

RULES: dict[str, tuple[Callable[[], Any], Any]] = {
    "gradient descent": (lambda: GradientDescentOptimizer(0.1), lockstep_tf),
    "momentum": (lambda: MomentumOptimizer(0.1, 0.9, use_nesterov=True), lockstep_tf),
    "Adam": (lambda: AdamOptimizer(0.01), lockstep_tf),
    "AdamW": (lambda: lockstep_tf.AdamWOptimizer(0.1, 0.01), lockstep_tf),
    "RMSProp": (lambda: RMSPropOptimizer(0.01), lockstep_tf),
    "FTRL": (lambda: lockstep_tf.FtrlOptimizer(0.1), lockstep_tf),
    "NovoGrad": (lambda: lockstep_tf.NovoGrad(0.01), lockstep_tf),
    "TensorFlow's Adagrad": (lambda: v1.train.AdagradOptimizer(0.1), lockstep_tf),
    "strict Adam": (lambda: strict.AdamOptimizer(0.01), strict),
}
WRAPPERS: dict[str, Callable[[Any, Any], Any]] = {
    "multitask": lambda rule, _: multitask(rule),
    "rows": lambda rule, own: rows(rule, {own["w"].ref(): [1]}, 1.5),
    "rows, strict": lambda rule, own: rows(
        rule, {own["w"].ref(): [-1]}, 1.5, strict=True
    ),
    "multitask around rows": lambda rule, own: multitask(
        rows(rule, {own["w"].ref(): [0]}, {own["w"].ref(): 1.5})
    ),
    "rows around multitask": lambda rule, own: rows(
        multitask(rule), {own["w"].ref(): [1]}, 1.5
    ),
}


def powers_of(optimizer: Any) -> list[float]:
    """Return a worker's powers of beta, which are in no slot."""
    base = getattr(optimizer, "base_optimizer", optimizer)
    powers = [v for v in base.variables() if "_power" in v.name]
    return [float(v) for v in powers]


def assert_same(ours: Team, theirs: Team) -> None:
    """Compare all bits of a team on a served center and of one in one process."""
    assert ours.shared() == theirs.shared()
    assert ours.weights() == theirs.weights()
    for one, other in zip(ours.workers, theirs.workers, strict=True):
        assert powers_of(one) == powers_of(other)


@pytest.mark.sample(3)
@pytest.mark.parametrize("commit", ["gradient", "delta"])
@pytest.mark.parametrize("name", RULES)
def test_the_center_moves_as_that_of_one_process(
    name: str, commit: str, tmp_path: Path
) -> None:
    """A crash with a checkpoint of each round and a lost reply change no bit."""
    make, names = RULES[name]
    host, options = LocalHost(tmp_path), {"count": 3, "names": names}
    if names is lockstep_tf:
        options["commit"] = commit
    ours, theirs = Team(make, host, **options), Team(make, **options)
    start = theirs.shared()
    for turn, number in enumerate(ORDER):
        host.lost += turn == 6
        ours.step(number, turn)
        theirs.step(number, turn)
        if turn == 9:
            host.crash()
    assert_same(ours, theirs)
    assert theirs.shared() != start
    assert host.center.counters.repeated == 1
    assert host.center.counters.rounds == 7


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "names"), [*((name, lockstep_tf) for name in WRAPPERS), ("rows", strict)]
)
def test_wrappers_inside_move_the_center_as_in_one_process(
    name: str, names: Any, tmp_path: Path
) -> None:
    """A crash and lost replies change no bit, one of them for a round of zeros."""
    host, options = LocalHost(tmp_path), {"names": names, "around": WRAPPERS[name]}
    teams = [Team(lambda: AdamOptimizer(0.5), h, **options) for h in (host, None)]
    for turn in range(16):
        host.lost = int(turn in (7, 9))
        for team in teams:
            team.step(turn // 2 % 2, turn, SCALES.get(turn, (1, 1)))
        assert_same(*teams)
        if turn == 12:
            host.crash()


def test_a_wrapper_around_moves_the_center_as_in_one_process(tmp_path: Path) -> None:
    """A gradient of zeros is absent, so its variable is neither pushed nor pulled."""
    host = LocalHost(tmp_path)
    teams = [Team(lambda: AdamOptimizer(0.1), h) for h in (host, None)]
    for team in teams:
        team.workers = [multitask(worker) for worker in team.workers]
        for turn in range(8):
            team.step(turn % 2, turn, (1, turn % 3))
    ours, theirs = teams
    assert ours.weights() == theirs.weights()
    assert host.center.counters.rounds == 4


def test_loss_scaling_around_leaves_out_a_step_here_and_there(tmp_path: Path) -> None:
    host = LocalHost(tmp_path)
    teams = [Team(lambda: AdamOptimizer(0.1), h, 1) for h in (host, None)]
    for team in teams:
        scaled = lockstep_tf.MixedPrecisionLossScaleOptimizer
        team.workers = [scaled(worker, "dynamic") for worker in team.workers]
        for turn in range(5):
            team.fill(0, np.inf if turn == 1 else float(turn))
    assert teams[0].weights() == teams[1].weights()
    assert (host.center.counters.rounds, host.center.counters.nonfinite) == (2, 0)


def test_a_rate_and_a_limit_that_change_are_followed(tmp_path: Path) -> None:
    rate, limit = tf.Variable(0.5), tf.Variable(8.0)
    variable = tf.Variable([8.0, 0.0])
    getter = AGNCustomGetter("/cpu:0", RemoteCenter(LocalHost(tmp_path)))
    getter([("w", variable)])
    rule = rows(GradientDescentOptimizer(lambda: rate), {variable.ref(): [0]}, limit)
    worker = AGNOptimizer(rule, 1, getter, 1)
    for number, length, expected in [
        (0.5, 8.0, 7.5),
        (0.25, 8.0, 7.25),
        (0.25, 4.0, 4),
    ]:
        rate.assign(number)
        limit.assign(length)
        worker.apply_gradients([(tf.constant([1.0, 0.0]), variable)])
        assert variable.numpy().tolist() == [expected, 0.0]


def test_a_late_joiner_starts_from_the_center_as_it_is(tmp_path: Path) -> None:
    host = LocalHost(tmp_path)
    team = Team(lambda: AdamOptimizer(0.1), host, 1)
    for seed in range(4):
        team.step(0, seed)
    late = Team(lambda: AdamOptimizer(0.1), host, 1)
    assert late.weights() == [team.shared()]
    assert host.center.counters.rounds == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: GradientDescentOptimizer(0.1),
        lambda: RMSPropOptimizer(0.1, centered=True),
    ],
    ids=["another class", "another slot"],
)
def test_a_checkpoint_of_another_optimizer_is_refused(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    team = Team(lambda: RMSPropOptimizer(0.1), LocalHost(tmp_path), 1)
    team.step(0, 0), team.step(0, 1)
    host = LocalHost(tmp_path)
    with pytest.raises(UnsupportedError):
        Team(make, host, 1)
    assert not host.exists()
    again = Team(lambda: RMSPropOptimizer(0.1), LocalHost(tmp_path), 1)
    assert again.weights() == [team.shared()]


def with_hook() -> Any:
    rule = GradientDescentOptimizer(0.1)
    rule.hook = lambda gradient: gradient
    return rule


def of_a_script() -> Any:
    class Own(GradientDescentOptimizer):
        """An optimizer that no module has."""

    return Own(0.1)


def with_hooks_for_good() -> Any:
    return strict.MultitaskOptimizerWrapper(GradientDescentOptimizer(0.1))


@pytest.mark.parametrize("make", [with_hook, of_a_script, with_hooks_for_good])
def test_what_no_other_process_can_make_is_refused(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    host = LocalHost(tmp_path)
    with pytest.raises(UnsupportedError):
        Team(make, host, 1)
    assert not host.exists()


def test_steps_in_a_function_are_refused(tmp_path: Path) -> None:
    team = Team(lambda: GradientDescentOptimizer(0.1), LocalHost(tmp_path), 1)
    with pytest.raises(UnsupportedError):
        tf.function(team.fill)(0, 1.0)


def test_a_push_with_nan_is_refused_and_nothing_has_moved(tmp_path: Path) -> None:
    team = Team(lambda: AdamOptimizer(0.1), LocalHost(tmp_path), 1, period=1)
    before = team.shared()
    with pytest.raises(OutOfRangeError):
        team.fill(0, np.nan)
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
    team, alone = Team(lambda: AdamOptimizer(0.1), host, 1), AdamOptimizer(0.1)
    start, weight = team.shared(), tf.Variable(0.0)
    host.lost = lost
    for number in (np.inf, 1.0):
        team.fill(0, number)
        alone.apply_gradients([(tf.constant(1.0), weight)])
    assert team.weights() == [team.shared()] == [start]
    assert powers_of(team.workers[0]) == powers_of(alone)
    for seed in range(2):
        team.step(0, seed)
    for _ in range(3):
        alone.apply_gradients([(tf.constant(1.0), weight)])
    assert powers_of(team.workers[0]) == powers_of(alone)
