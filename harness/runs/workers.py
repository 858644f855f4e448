"""Worker processes, as the runner sees them: each does one run after the other."""

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
"""Where worker processes live: on this machine, or on the nodes of a cluster."""


@dataclass(frozen=True)
class Refusal:
    """A worker cannot use its framework or its device.

    Attributes:
        reason: one sentence.
    """

    reason: str


@dataclass(frozen=True)
class Crash:
    """A worker process ended before it answered.

    Attributes:
        reason: its signal or exit status, and the last line of its standard error.
        start: when the run began, as in a record; its duration, too.
    """

    reason: str
    start: Answer


@dataclass(frozen=True)
class Lost:
    """A worker's machine is gone, which says nothing about the run.

    Attributes:
        reason: one sentence.
    """

    reason: str


class Worker:
    """A process that does runs of one task on one backend.

    Attributes:
        number: of the process within the command.
        introduction: what the worker said about itself; None until it did.
    """

    def __init__(
        self, task: str, backend: str, device: str, number: int, hosts: Hosts
    ) -> None:
        self.number = number
        self.introduction: Answer | None = None
        arguments = [task, backend, device]
        self._conversation = hosts.converse(MODULE, arguments)

    def do(self, run: Run) -> Answer | Crash | Refusal | Lost:
        """Have a run done; return the answer, or why there is none."""
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
        """Have the process end; return how it did."""
        return self._conversation.end()

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._conversation.stop()

    def _receive(self) -> Answer | None:
        line = self._conversation.receive()
        return None if line is None else json.loads(line)
