"""Workers go on without a node, and a center whose node is gone moves to another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.processes.environment import child_variables
from harness.runs.tests.nodes import loopback_only
from lockstep.ray.tests.lost_nodes import EVERY, RESULT


@pytest.mark.slow
def test_two_of_three_nodes_can_be_lost(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install ray")
    command = [sys.executable, "-m", "lockstep.ray.tests.lost_nodes", str(tmp_path)]
    done = subprocess.run(
        [*loopback_only(), *command],
        env=child_variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads((tmp_path / RESULT).read_text())
    # An applied push whose reply was lost is counted by the center alone.
    assert -1 <= seen.pop("lost") <= EVERY
    assert all(seen.values()), seen
