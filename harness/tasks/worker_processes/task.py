"""Digits that workers in processes of their own learn together, over a link.

Each worker computes its own gradients. How accurate the shared model is, is measured
against the seconds of the clock. On ``loopback`` all processes are on one machine. With
a ``slow link`` each of them is on a machine of its own, see ``machines``.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt

from harness.errors import HarnessError
from harness.processes.children import Child
from harness.processes.environment import child_variables
from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.schema import Count, Positive, settings
from harness.tasks.worker_processes.machines import isolated, require_machines

MOST = 64
"""The most workers on one computer; each is a process with its framework."""

LOOPBACK, SLOW_LINK = "loopback", "slow link"

TARGET = 0.95
"""The accuracy of the seconds to the target."""


@settings
class Settings:
    """The settings of one run. Adam trains every worker."""

    method: Literal["agn", "easgd", "ddp"]
    link: Literal["loopback", "slow link"]
    workers: Annotated[StrictInt, Field(gt=1, le=MOST)]
    period: Count  # local steps between two exchanges of a worker; DDP's is 1
    learning_rate: Positive
    batch: Count  # images of a local step
    hidden: Count  # width of the hidden layer
    link_mbit: Positive  # megabits a second of a slow link, in each direction
    seconds: Positive  # of training


def prepare(backend: str, device: str) -> None:
    """Raise if the CPU, the framework or Ray is missing.

    Raises:
        HarnessError: one of them is missing.
    """
    backends.require_cpu(backend, device)
    backends.model("worker_processes", backend)
    if importlib.util.find_spec("ray") is None:
        raise HarnessError("workers: expected Ray, got none; run pip install ray.")


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if the shared weights are not finite.

    Series, one entry per measurement of the shared weights: ``seconds`` since the start
    and ``accuracy`` on held-out images. Summary: ``accuracy``, the mean of the last
    five; ``mean_accuracy`` over the seconds; ``to_target``, the seconds until an
    accuracy of 95% (infinite if it was not reached); ``steps``, local steps a second of
    all workers.

    Raises:
        UnsupportedError: this computer does not allow slow links.
    """
    of = Settings(**config)
    mbit = 0.0 if of.link == LOOPBACK else of.link_mbit
    return _laboratory(backend, of.workers, mbit).measure(config, seed)


class Laboratory:
    """The process that starts Ray and does the runs; it ends with this process.

    It is a process of its own, because namespaces cannot be left.
    """

    def __init__(self, backend: str, workers: int, mbit: float) -> None:
        # It ends when it is given no more lines; then Ray ends all of its processes.
        arguments = json.dumps([backend, workers, mbit])
        command = [sys.executable, "-m", f"{__package__}.laboratory", arguments]
        if mbit:
            require_machines()
            command = isolated(command)
        self._child = Child(command, child_variables())

    def measure(self, config: Mapping[str, Any], seed: int) -> Outcome:
        """Do a run.

        Raises:
            HarnessError: the process ended.
        """
        self._child.send(json.dumps([dict(config), seed]))
        answer = self._child.receive()
        if answer is None:
            _laboratory.cache_clear()
            raise HarnessError(f"the workers' process ended ({self._child.end()}).")
        return Outcome(**json.loads(answer))


_laboratory = functools.cache(Laboratory)  # Starting Ray takes longer than a run.
