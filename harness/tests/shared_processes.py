"""Processes that several tests share, because an import of TensorFlow takes seconds.

Each kind of script has a process of its own. Its scripts run one after the other, each
with Lockstep imported anew and TensorFlow's graph empty. Scripts that change TensorFlow
for good, such as ``disable_v2_behavior``, share a kind with those that do the same, or
have the fixture ``fresh``: a process of their own that has only imported TensorFlow.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from harness.processes.children import Children, Conversation
from harness.tests.script_process import Request

MODULE = "harness.tests.script_process"
SECONDS = 300
"""How long a script may take."""


class Processes:
    """Processes that run scripts, one for those of each kind."""

    def __init__(self) -> None:
        self._children = Children()
        self._running: dict[str, Conversation] = {}

    def output_of(self, kind: str, frameworks: Sequence[str], request: Request) -> str:
        """Return what a script prints in the process of its kind.

        The test fails if the script ends in an error, with the error.

        Args:
            frameworks: what the process imports when it starts.
        """
        process = self._running.get(kind)
        if process is None:
            process = self._children.converse(MODULE, frameworks)
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
        if request.alone and sys.platform != "linux":
            # The script ran in the process itself.
            self._running.pop(kind).stop()
        return outcome["printed"]

    def end(self) -> None:
        """End all of them."""
        for process in self._running.values():
            process.stop()


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """Processes that the tests of all files share."""
    found = Processes()
    yield found
    found.end()


@pytest.fixture
def fresh(processes: Processes, tmp_path: Path) -> Callable[..., str]:
    """Run a script after the imports of TensorFlow and Keras; return what it printed.

    Each has a process of its own, which no other script has used.
    """

    def run(script: str, *arguments: object) -> str:
        path = tmp_path / "script.py"
        path.write_text(script, "utf-8")
        texts = [str(argument) for argument in arguments]
        request = Request(str(path), texts, str(tmp_path), True, alone=True)
        return processes.output_of("fresh", ["tensorflow", "keras"], request).strip()

    return run
