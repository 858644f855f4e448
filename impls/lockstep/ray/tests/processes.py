"""A worker in an ordinary process, which does what it is asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lockstep.ray import RayCenter
from lockstep.ray.center import RayHost
from lockstep.ray.tests.conftest import SOURCES


class OrdinaryWorker:
    """A process of ``trainer.py``, which connects to Ray by an address."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def hear(self) -> list[str]:
        """Return the words of the next line that it prints."""
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        assert words, "the process has ended"
        return words

    def ask(self, line: str) -> list[str]:
        """Write a line and return the words of the answer."""
        print(line, file=self._process.stdin, flush=True)
        return self.hear()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)


@contextmanager
def ordinary_worker(
    seed: int, address: str, center: RayCenter
) -> Iterator[OrdinaryWorker]:
    """Start a worker in a process of its own, which is killed in the end."""
    script = Path(__file__).with_name("trainer.py")
    variables = {"PYTHONPATH": SOURCES, "SEED": str(seed), "PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen(
        [sys.executable, str(script), address, center.name, str(center.directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )
    try:
        yield OrdinaryWorker(process)
    finally:
        process.kill()
        process.communicate()


def place_of(ray: Any, center: RayCenter) -> tuple[str, int]:
    """Return the node on which a center is, and the id of its process."""
    host = RayHost(center)
    assert host.exists()

    def place(actor: Any) -> tuple[str, int]:
        return ray.get_runtime_context().get_node_id(), os.getpid()

    found: tuple[str, int] = ray.get(host._handle.__ray_call__.remote(place))
    return found
