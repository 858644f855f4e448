"""A node of a cluster that is killed ends what runs there, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.processes.environment import child_variables
from harness.runs.tests.nodes import loopback_only
from lockstep.ray.tests.lost_nodes import RESULT

SECONDS = 220
"""Below the limit of a test, so that the child's output can be shown."""


@pytest.mark.soak
@pytest.mark.slow
def test_workers_go_on_without_a_node_and_the_center_moves_to_another(
    tmp_path: Path,
) -> None:
    """The child checks that every state is promised: see ``History``."""
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
