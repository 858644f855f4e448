"""A run that is saved at any step, and resumed elsewhere, goes on to the bit."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.composition.stacks import STACKS
from harness.environment import child_variables

WORKER = "harness.composition.tests.resume_worker"
NEEDS = {
    "reference": "numpy",
    "pytorch": "torch",
    "tf eager": "tensorflow",
    "tf graph": "tensorflow",
    "keras3": "keras",
}


def act(what: str, host: str, folder: Path) -> dict[str, list[str]]:
    """Record or resume every stack of a host in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", WORKER, what, host, str(folder)],
        capture_output=True,
        text=True,
        env=child_variables(),
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """Return, for each host that is here, what came out otherwise in each stack."""
    here = [host for host, needs in NEEDS.items() if importlib.util.find_spec(needs)]
    folders = {host: tmp_path_factory.mktemp(host.replace(" ", "_")) for host in here}

    def both(host: str) -> dict[str, list[str]]:
        act("record", host, folders[host])
        return act("resume", host, folders[host])

    # The slowest first.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(reversed(here), pool.map(both, reversed(here)), strict=True))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("host", NEEDS)
def test_a_run_resumed_at_any_of_50_steps_in_a_fresh_process_is_the_same_run(
    resumed: dict[str, dict], host: str, stack: str
) -> None:
    if host not in resumed:
        pytest.skip(f"needs {NEEDS[host]}")
    assert resumed[host][stack] == []
