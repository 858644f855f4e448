"""Worker processes as the runner sees them: each does one run after the other."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from harness.declarations.declare import Run
from harness.processes.children import Children
from harness.processes.cluster import Cluster, NodeLostError
from harness.records.machine import start_of_run

MODULE = "harness.runs.worker"

Answer: TypeAlias = Mapping[str, Any]

Hosts: TypeAlias = Children | Cluster
"""Where worker processes run: on this machine, or on the nodes of a cluster."""


@dataclass(frozen=True)
class Failure:
    """Why there is no answer. The worker has ended.

    Attributes:
        kind: ``refused``: the framework or the device cannot be used; ``crashed``: the
            process ended before it answered; ``lost``: its machine is gone, and the run
            itself may be fine.
        reason: one sentence; of a crash the signal or exit status, and the last line of
            its standard error.
        start: of a crash: when the run began, as in a record, and its duration.
    """

    kind: Literal["refused", "crashed", "lost"]
    reason: str
    start: Answer = field(default_factory=dict)


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
        self._conversation = hosts.converse(MODULE, [task, backend, device])

    def do(self, run: Run) -> Answer | Failure:
        """Do a run. Return the answer, or the reason why there is none."""
        try:
            self._conversation.send(json.dumps(asdict(run)))
            if self.introduction is None:
                content = self._receive()
                if content is None:
                    return Failure("crashed", self.end())
                if "refused" in content:
                    self.end()
                    return Failure("refused", content["refused"])
                self.introduction = content
            start, begin = start_of_run(), time.monotonic()
            answer = self._receive()
            if answer is not None:
                return answer
            start["duration"] = round(time.monotonic() - begin, 3)
            return Failure("crashed", self.end(), start)
        except NodeLostError as error:
            return Failure("lost", str(error))

    def end(self) -> str:
        """Wait for the process to end and return how it ended."""
        return self._conversation.end()

    def stop(self) -> None:
        """Stop the process, whatever it is doing."""
        self._conversation.stop()

    def _receive(self) -> Answer | None:
        line = self._conversation.receive()
        return None if line is None else json.loads(line)
