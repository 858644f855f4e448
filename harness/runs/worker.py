"""A process that does runs of one task on one backend, and its end in the command.

``python -m harness.runs.worker TASK BACKEND DEVICE`` reads runs from standard input,
one JSON object per line. It answers each on standard output before it reads the next.
Its first line describes the process itself. Other output of a framework goes to
standard error. If the framework or device cannot be used, the first line has the reason
as ``refused``, and the process exits.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from harness.declarations.declare import Run
from harness.errors import HarnessError
from harness.processes import environment
from harness.processes.cluster import NodeLostError
from harness.processes.environment import start_of_run
from harness.records.record import Outcome
from harness.tasks import backends, part
from lockstep import __version__, registry
from lockstep.errors import LockstepError, UnsupportedError

if TYPE_CHECKING:
    from harness.processes.children import Children
    from harness.processes.cluster import Cluster

MODULE = "harness.runs.worker"

# -- in the command --------------------------------------------------------------------


class WorkerEndedError(HarnessError):
    """A worker process ended before it was ready."""


class Worker:
    """A worker process of the command.

    Args:
        number: of the process within the command.
        hosts: where it runs: on this machine, or on the nodes of a cluster.

    Attributes:
        subject, environment: of the records of this process.
        ended: whether the process ended in the middle of a run.

    Raises:
        HarnessError: the framework or the device cannot be used.
        WorkerEndedError: the process ended before it was ready.
    """

    def __init__(
        self,
        task: str,
        backend: str,
        device: str,
        number: int,
        hosts: Children | Cluster,
    ) -> None:
        self.number, self.ended = number, False
        self._child = hosts.start(MODULE, [task, backend, device])
        try:
            line = self._child.receive()
        except NodeLostError as loss:  # Another node may be free.
            raise WorkerEndedError(str(loss)) from loss
        if line is None:
            raise WorkerEndedError(f"the worker process ended ({self.end()})")
        content = json.loads(line)
        if "refused" in content:
            self.end()
            raise HarnessError(content["refused"])
        self.subject: Mapping[str, str] = content["subject"]
        self.environment: Mapping[str, Any] = content["environment"]

    def do(self, run: Run) -> dict[str, Any]:
        """Do a run; return its outcome, start, load and duration.

        If the process ends instead, the run has the outcome ``error``, and no other run
        can be done.
        """
        start, begin = start_of_run(), time.monotonic()
        self._child.send(json.dumps(dataclasses.asdict(run)))
        line = self._child.receive()
        if line is not None:
            answer: dict[str, Any] = json.loads(line)
            return answer
        seconds = time.monotonic() - begin
        self.ended = True
        outcome = Outcome("error", f"the worker process ended ({self.end()})")
        return answer_of(start, seconds, outcome)

    def end(self) -> str:
        """Wait for the process to end and return how it ended."""
        return self._child.end()

    def stop(self) -> None:
        """Stop the process, whatever it is doing."""
        self._child.stop()


def answer_of(
    start: Mapping[str, Any], seconds: float, outcome: Outcome
) -> dict[str, Any]:
    """Return what a record says of a run."""
    return {**start, "duration": round(seconds, 3), **dataclasses.asdict(outcome)}


# -- in the process --------------------------------------------------------------------


def main(task: str, backend: str, device: str) -> None:
    """Do the runs in the order in which they are read."""
    answers = _private_output()
    try:
        backends.prepare(task, backend, device)
    except Exception as error:
        _send(answers, {"refused": _in_one_line(error)})
        sys.exit(1)
    _send(answers, introduce(backend, device))
    for line in sys.stdin:
        run = Run(**json.loads(line))
        start, begin = start_of_run(), time.monotonic()
        outcome = attempt(run, backend, device)
        _send(answers, answer_of(start, time.monotonic() - begin, outcome))


def introduce(backend: str, device: str) -> dict[str, Any]:
    """Return the subject and the environment of the records of this process."""
    framework = registry.find(backend).framework or "numpy"
    subject = {
        "backend": backend,
        "device": device,
        "lockstep": __version__,
        framework: environment.version(framework),
    }
    name = environment.device_name(framework, device)
    subject |= {} if name is None else {"device_name": name}
    described = environment.describe(framework, device, gpu=name)
    return {"subject": subject, "environment": described}


def attempt(run: Run, backend: str, device: str) -> Outcome:
    """Do one run. Turn an exception into its status and reason."""
    try:
        train = part(run.task, "task").train
        outcome: Outcome = train(run.config, run.seed, backend, device)
        return outcome
    except UnsupportedError as error:
        return Outcome("skipped", str(error))
    except Exception as error:
        return Outcome("error", _in_one_line(error))


def _in_one_line(error: Exception) -> str:
    if isinstance(error, HarnessError | LockstepError):
        return str(error)
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _private_output() -> TextIO:
    """Reserve standard output for answers; redirect other output to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _send(answers: TextIO, content: Mapping[str, Any]) -> None:
    answers.write(json.dumps(content) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
