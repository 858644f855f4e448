"""Worker processes as the runner sees them: each does one run after the other."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from harness.declarations.declare import Run
from harness.processes.children import Children
from harness.processes.cluster import Cluster, NodeLostError
from harness.records.machine import start_of_run

__all__ = ["Answer", "Crash", "Hosts", "Lost", "Refusal", "Worker"]

MODULE = "harness.runs.worker"

Answer: TypeAlias = Mapping[str, Any]

Hosts: TypeAlias = Children | Cluster
"""Where worker processes run: on this machine, or on the nodes of a cluster."""


@dataclass(frozen=True)
class Refusal:
    """The answer of a worker that cannot use its framework or its device.

    Attributes:
        reason: one sentence.
    """

    reason: str


@dataclass(frozen=True)
class Crash:
    """The result of a worker process that ended before it answered.

    Attributes:
        reason: its signal or exit status, and the last line of its standard error.
        start: when the run began, as in a record, and its duration.
    """

    reason: str
    start: Answer


@dataclass(frozen=True)
class Lost:
    """The result of a worker whose machine is gone. The run itself may be fine.

    Attributes:
        reason: one sentence.
    """

    reason: str


class Worker:
    """A process that does runs of one task on one backend.

    Attributes:
        number: of the process within the command.
        introduction: the worker's description of itself; None before it was received.
    """

    def __init__(
        self, task: str, backend: str, device: str, number: int, hosts: Hosts
    ) -> None:
        self.number = number
        self.introduction: Answer | None = None
        arguments = [task, backend, device]
        self._conversation = hosts.converse(MODULE, arguments)

    def do(self, run: Run) -> Answer | Crash | Refusal | Lost:
        """Do a run. Return the answer, or the reason why there is none."""
        try:
            return self._do(run)
        except NodeLostError as error:
            return Lost(str(error))

    def _do(self, run: Run) -> Answer | Crash | Refusal:
        self._conversation.send(json.dumps(asdict(run)))
        if self.introduction is None:
            content = self._receive()
            if content is None:
                return Crash(self.end(), {})
            if "refused" in content:
                self.end()
                return Refusal(content["refused"])
            self.introduction = content
        start, begin = start_of_run(), time.monotonic()
        answer = self._receive()
        if answer is None:
            return Crash(
                self.end(), {**start, "duration": round(time.monotonic() - begin, 3)}
            )
        return answer

    def end(self) -> str:
        """Wait for the process to end and return how it ended."""
        return self._conversation.end()

    def stop(self) -> None:
        """Stop the process, whatever it is doing."""
        self._conversation.stop()

    def _receive(self) -> Answer | None:
        line = self._conversation.receive()
        return None if line is None else json.loads(line)
