"""Processes and nodes that are killed at random break no promise of a center."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.processes.environment import child_variables
from harness.runs.tests.nodes import loopback_only
from lockstep.ray.tests.lost_nodes import RESULT
from lockstep.ray.tests.soak import MOMENTS, Line, Team, check, kill_at_random

SECONDS = 220
"""Below the limit of a test, so that the child's output can be shown."""


@pytest.mark.soak
@pytest.mark.parametrize(("kills", "seed"), [(5, 4), (200, 1)])
def test_random_kills_leave_states_that_are_promised(
    kills: int, seed: int, ray: Any, tmp_path: Path
) -> None:
    team = Team(ray, tmp_path, f"kills-{seed}")
    try:
        killed = kill_at_random(team, kills, seed)
        losses = team.end()
    finally:
        team.close()
    # Workers and the center are among them.
    assert losses and killed["ack"]
    if kills == 200:
        assert min(killed[moment] for moment in {*MOMENTS, "start", "worker"}) > 5


@pytest.mark.soak
@pytest.mark.slow
def test_workers_go_on_without_a_node_and_the_center_moves_to_another(
    tmp_path: Path,
) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install ray")
    command = [sys.executable, "-m", "lockstep.ray.tests.lost_nodes", str(tmp_path)]
    done = subprocess.run(
        [*loopback_only(), *command],
        env=child_variables(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads((tmp_path / RESULT).read_text())
    # The node without the center takes its worker along, and no round of the others.
    assert seen["restarts before"] == 0, seen
    assert seen["moved to the last"]
    assert len(seen["losses"]) == 1, seen


def begin(*weights: int) -> Line:
    return {"what": "begin", "weights": weights}


def push(worker: str, sequence: int, *weights: int, ack: Any = None) -> list[Line]:
    """Return the lines of a push of worker a, b or c, and of what it got."""
    who = {"push": [worker, sequence], "slot": "abc".index(worker)}
    done = {"what": "done", "weights": weights}
    reply = {"what": "ack", **who, "weights": ack or weights}
    return [{"what": "call", **who}, done, reply]


FIRST = [begin(0, 0, 0), *push("a", 1, 1, 0, 0), *push("b", 1, 1, 1, 0)]
IN_A_CALL = [*FIRST, *push("c", 1, 1, 1, 1)[:1]]

KEPT: dict[str, tuple[list[Line], list[int]]] = {
    "no kill": (FIRST, []),
    "a lost round": ([*FIRST, begin(1, 0, 0), *push("b", 1, 1, 1, 0)], [1]),
    "in": ([*IN_A_CALL, begin(1, 1, 1), *push("c", 1, 1, 1, 1)], [0]),
    "out": ([*IN_A_CALL, begin(1, 1, 0), *push("c", 1, 1, 1, 1)], [0]),
}
BROKEN = {
    "more rounds are lost": [*FIRST, *push("a", 2, 2, 1, 0), begin(0, 0, 0)],
    "a state that never was": [*FIRST, begin(0, 1, 0)],
    "more than it had": [*FIRST, begin(1, 1, 1)],
    "applied twice": [*FIRST, *push("b", 1, 1, 2, 0)],
    "applied twice after a kill": [
        *(*IN_A_CALL, begin(1, 1, 1)),
        *push("c", 1, 1, 1, 2),
    ],
    "not applied": [*FIRST, *push("c", 1, 1, 1, 0)],
    "a reply of another state": [*FIRST, *push("c", 1, 1, 1, 1, ack=(1, 1, 0))],
    "another end": [*FIRST, {**begin(1, 0, 0), "what": "end"}],
}


@pytest.mark.parametrize("kept", KEPT)
def test_lines_that_keep_the_promise_pass(kept: str) -> None:
    lines, losses = KEPT[kept]
    assert check(lines, 2) == losses


@pytest.mark.parametrize("broken", BROKEN)
def test_lines_that_break_the_promise_fail(broken: str) -> None:
    with pytest.raises(AssertionError):
        check(BROKEN[broken], 2)
