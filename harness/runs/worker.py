"""A child process that does the runs of one task on one backend, one at a time.

``python -m harness.runs.worker TASK BACKEND DEVICE`` reads runs from standard input,
one JSON object per line. It answers each on standard output before it reads the next.
Its first line describes the process itself. Other output of a framework goes to
standard error. If the framework or device cannot be used, the worker answers with
``refused`` and the reason, and exits.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from harness.declarations.declare import Run
from harness.errors import HarnessError
from harness.processes import environment
from harness.records.machine import start_of_run
from harness.records.record import Outcome
from harness.tasks import backends, part
from lockstep import __version__, registry
from lockstep.errors import LockstepError, UnsupportedError


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
        _send(answers, measure(Run(**json.loads(line)), backend, device))


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


def measure(run: Run, backend: str, device: str) -> dict[str, Any]:
    """Do one run. Return its outcome, start, duration and load."""
    answer, begin = {"id": run.id, **start_of_run()}, time.monotonic()
    outcome = attempt(run, backend, device)
    answer["duration"] = round(time.monotonic() - begin, 3)
    return {**answer, **dataclasses.asdict(outcome)}


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
