"""Wrappers inside of a worker whose center is behind the boundary of a process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from lockstep import tf as lockstep_tf
from lockstep.errors import UnsupportedError
from lockstep.ray.tests.local_host import LocalHost
from lockstep.tf import AdamOptimizer, GradientDescentOptimizer, strict
from lockstep.tf.tests.workers.remote_team import Team
from lockstep.tf.workers.served_weights import powers_of

multitask = lockstep_tf.MultitaskOptimizerWrapper
rows = lockstep_tf.VariableClippingOptimizer
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

SCALES = {2: (0, 1), 3: (0, 0), 5: (1, 0)}
"""Rounds of which a mean gradient is zero, or both are."""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "names"), [*((name, lockstep_tf) for name in WRAPPERS), ("rows", strict)]
)
def test_wrappers_inside_move_the_center_as_in_one_process(
    name: str, names: Any, tmp_path: Path
) -> None:
    """A crash and lost replies change no bit, one of them for a round of zeros."""
    host, options = LocalHost(tmp_path), {"names": names, "around": WRAPPERS[name]}
    teams = [Team(lambda: AdamOptimizer(0.5), h, 2, **options) for h in (host, None)]
    ours, theirs = teams
    for turn in range(8):
        number, scales = turn % 2, SCALES.get(turn, (1, 1))
        host.lost = int(turn in (3, 4))
        for team in teams:
            team.step(number, 2 * turn, scales)
            team.step(number, 2 * turn + 1, scales)
        assert ours.shared() == theirs.shared()
        one, other = (team.workers[number].base_optimizer for team in teams)
        assert powers_of(one) == powers_of(other)
        if turn == 5:
            host.crash()
    assert [ours.bits(k) for k in range(2)] == [theirs.bits(k) for k in range(2)]


def test_a_checkpoint_of_an_optimizer_in_other_wrappers_is_refused(
    tmp_path: Path,
) -> None:
    Team(AdamOptimizer, LocalHost(tmp_path), 1, around=WRAPPERS["multitask"])
    with pytest.raises(UnsupportedError, match="got one with MultitaskOptimizerWrap"):
        Team(AdamOptimizer, LocalHost(tmp_path), 1)


def of_another_class(rule: Any, _: Any) -> Any:
    class Own(lockstep_tf.MultitaskOptimizerWrapper):
        """A wrapper that does something else."""

    return Own(rule)


def with_hooks_for_good(rule: Any, _: Any) -> Any:
    return strict.MultitaskOptimizerWrapper(rule)


def with_a_limit_that_may_change(rule: Any, own: Any) -> Any:
    return rows(rule, {own["w"].ref(): [1]}, tf.Variable(1.5))


@pytest.mark.parametrize(
    ("around", "told"),
    [
        (of_another_class, "got Own, whose inner_optimizer is a GradientDescentOpt"),
        (
            with_hooks_for_good,
            "got GradientDescentOptimizer, whose _apply_dense is a f",
        ),
        (with_a_limit_that_may_change, r"whose max_norm is a \w*Variable; use commit"),
    ],
)
def test_wrappers_that_no_other_process_can_make_are_refused(
    around: Callable[[Any, Any], Any], told: str, tmp_path: Path
) -> None:
    host = LocalHost(tmp_path)
    with pytest.raises(UnsupportedError, match=told):
        Team(lambda: GradientDescentOptimizer(0.1), host, 1, around=around)
    assert not host.exists()
