"""Processes that several tests share, because an import of TensorFlow takes seconds.

Each kind of script has a process of its own. Its scripts run one after the other, each
with Lockstep imported anew and TensorFlow's graph empty. Scripts that change TensorFlow
for good, such as ``disable_v2_behavior``, share a kind with those that do the same.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence

import pytest

from harness.processes.children import Child, Children
from harness.tests.script_process import Request

MODULE = "harness.tests.script_process"
UNCHANGED = ("tensorflow keras", "torch")
"""Kinds of processes by what they import, for scripts that leave it as it was."""
TWO_DEVICES = "two devices"
"""The kind of the process in which scripts split the CPU, all in the same way."""
SECONDS = 1200
"""How long a script may take."""


class Processes:
    """Processes that run scripts, one for those of each kind."""

    def __init__(self) -> None:
        self._children = Children()
        self._running: dict[str, Child] = {}

    def output_of(self, kind: str, frameworks: Sequence[str], request: Request) -> str:
        """Return what a script prints in the process of its kind.

        The test fails if the script ends in an error, with the error.

        Args:
            frameworks: what the process imports when it starts.
        """
        process = self._running.get(kind)
        if process is None:
            process = self._children.start(MODULE, frameworks)
            self._running[kind] = process
        process.send(json.dumps(request))
        late = threading.Timer(SECONDS, process.stop)
        late.start()
        answer = process.receive()
        late.cancel()
        if answer is None:
            del self._running[kind]
            pytest.fail(f"its process ended: {process.end()}")
        outcome = json.loads(answer)
        if outcome["error"]:
            # What it left behind would make others fail.
            self._running.pop(kind).stop()
            pytest.fail(outcome["error"], pytrace=False)
        return outcome["printed"]

    def end(self) -> None:
        """End all of them."""
        for process in self._running.values():
            process.stop()


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """Processes that the tests of all files share."""
    made = Processes()
    yield made
    made.end()
