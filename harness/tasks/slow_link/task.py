"""Steps per second of workers on separate machines with slow links.

A machine is a network namespace with a Ray node. A link is a pair of virtual interfaces
to a bridge between all machines. The kernel limits its rate in both directions. So all
exchanges are really sent, although everything runs on one computer.

Namespaces cannot be left, so a separate process does all runs; see ``laboratory``.
"""

from __future__ import annotations

import functools
import multiprocessing
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from harness.errors import HarnessError
from harness.records.record import Outcome
from harness.tasks.schema import Positive, settings
from harness.tasks.slow_link.machines import isolated, require_machines
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
    """
    of = Settings(**config)
    remote = _remote(backend)
    try:
        return remote.measure(of)
    except BaseException:
        # Some of its processes may wait for a failed one.
        remote.end()
        _remote.cache_clear()
        raise


class RemoteLaboratory:
    """The process that does the runs; it ends with this process."""

    def __init__(self, backend: str) -> None:
        self._connection, other = multiprocessing.Pipe()
        module = f"{__package__}.laboratory"
        words = [sys.executable, "-m", module, backend, str(other.fileno())]
        self._process = subprocess.Popen(
            isolated(words),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            pass_fds=[other.fileno()],
        )
        other.close()

    def measure(self, settings: Settings) -> Outcome:
        """Do a run in the remote process; return its outcome.

        Raises:
            HarnessError: the run failed.
        """
        seconds = SECONDS_FOR_START + WINDOWS * settings.window
        try:
            self._connection.send(settings)
            if not self._connection.poll(seconds):
                raise HarnessError(f"a run was not done in {seconds:g} s.")
            answer: Outcome | str = self._connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise HarnessError("the process with the machines ended.") from error
        if isinstance(answer, str):
            raise HarnessError(answer)
        return answer

    def end(self) -> None:
        """End the process and its machines."""
        self._connection.close()
        self._process.kill()
        self._process.wait()


@functools.cache
def _remote(backend: str) -> RemoteLaboratory:
    """Return the process of all runs, because starting Ray takes longer than a run."""
    require_machines()
    return RemoteLaboratory(backend)
