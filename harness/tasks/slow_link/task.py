"""Steps per second of workers on separate machines with slow links.

A machine is a network namespace with a Ray node. A link is a pair of virtual interfaces
to a bridge between all machines. The kernel limits its rate in both directions. So all
exchanges are really sent, although everything runs on one computer.

Namespaces cannot be left, so each run has a process of its own; see ``laboratory``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from harness.errors import HarnessError
from harness.records.record import Outcome
from harness.tasks.schema import Positive, settings
from harness.tasks.slow_link.machines import isolated, last_line, require_machines
from harness.tasks.worker_team.task import TeamSettings
from harness.tasks.worker_team.task import prepare as prepare

SECONDS_FOR_START, WINDOWS = 600.0, 20
"""The timeout of a run: seconds for the start, and multiples of its window."""


@settings
class Settings(TeamSettings):
    link_mbit: Positive  # megabits a second of each link in each direction


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; nothing is random, so a seed is a repetition.

    Summary, in seconds, and in steps per second of all workers:

    - of the link of one worker: ``link/bandwidth``, bytes per second, and
      ``link/latency``, one way;
    - of one worker: ``seconds/step`` without an exchange, ``seconds/exchange``, the
      additional time of an exchange, ``seconds/center``, its CPU time at the center;
    - ``steps/ddp`` and ``steps/PERIOD``.

    Raises:
        UnsupportedError: this computer does not allow slow links.
        HarnessError: the run failed or took too long.
    """
    require_machines()
    of = Settings(**config)
    seconds = SECONDS_FOR_START + WINDOWS * of.window
    module = f"{__package__}.laboratory"
    program = [sys.executable, "-m", module, backend, json.dumps(dict(config))]
    try:
        done = subprocess.run(
            isolated(program), capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise HarnessError(f"a run was not done in {seconds:g} s.") from error
    if done.returncode:
        raise HarnessError(f"a run on separate machines failed: {last_line(done)}")
    return Outcome("ok", "", {}, json.loads(done.stdout.splitlines()[-1]))
