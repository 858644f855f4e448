"""Shared code of the tasks that measure workers in separate processes.

A step waits for a fixed time, as for an accelerator that computes in parallel to the
CPU. So the exchange is measured, and not the number of cores of the machine.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StrictInt

from harness.errors import HarnessError
from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.schema import Positive, require, settings
from lockstep.errors import sentence
from lockstep.ray import RayCenter
from lockstep.ray.center import NAMESPACE

PERIODS = (1, 10, 40)
"""Local steps between two exchanges of a worker."""

MOST = 64
"""The most workers on one machine; each is a process with its framework."""

FLOAT = 4
"""The bytes of a weight."""


def weights_of(megabytes: float) -> int:
    """Return the number of weights of a model in float32."""
    return max(1, round(megabytes * 1e6 / FLOAT))


@settings
class TeamSettings:
    """The settings of the runs of every task with workers."""

    workers: Annotated[StrictInt, Field(gt=0, le=MOST)]  # that train at the same time
    step_ms: Positive  # milliseconds that a step waits
    model_mb: Positive  # megabytes of weights, in float32
    window: Positive  # seconds for which steps are counted

    def __post_init__(self) -> None:
        rounds = 1000 * self.window / (max(PERIODS) * self.step_ms)
        expected = f"time for a round of {max(PERIODS)} steps"
        require(rounds >= 1, "window", expected, f"{self.window} s")

    @property
    def weights(self) -> int:
        return weights_of(self.model_mb)

    @property
    def model_bytes(self) -> int:
        return FLOAT * self.weights


def prepare(backend: str, device: str) -> None:
    """Raise if the CPU, the framework or Ray is missing.

    Raises:
        HarnessError: one of them is missing.
    """
    backends.require_cpu(backend, device)
    backends.model("worker_team", backend)
    if importlib.util.find_spec("ray") is None:
        raise HarnessError(sentence("workers", "Ray", "none", "run pip install ray"))


# -- processes -------------------------------------------------------------------------

LOOPBACK = "127.0.0.1"
OBJECT_STORE = 2 << 30
"""The bytes of Ray's object store, enough for some copies of a large model."""

ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"

VARIABLES = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    # The seconds that Ray waits for its first process, twice the default.
    "RAY_gcs_server_port_wait_time_s": "60",
    # Without this variable Ray replaces 127.0.0.1 by the machine's address.
    ONE_MACHINE: "0",
}

STARTS = 3
"""The attempts to start Ray; it waits only 30 s for its second process."""


def start_ray(address: str = LOOPBACK, object_store: int = OBJECT_STORE) -> Any:
    """Start Ray, which ends with this process, and return it.

    Its processes inherit our path and threads. They also end if this process is killed,
    because Ray watches it.

    Args:
        address: this machine's address, by which others reach it. On loopback no other
            machine can.
        object_store: bytes of shared memory for objects in transit.
    """
    # Ray and the processes that it starts read these variables on import.
    os.environ.update(VARIABLES)
    # Ray reads the token only once per process.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    import ray

    for attempt in range(1, STARTS + 1):
        try:
            ray.init(
                address="local",
                _node_ip_address=address,
                include_dashboard=False,
                num_cpus=1,
                object_store_memory=object_store,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
            break
        except Exception:  # Ray has no error of its own for a start that timed out.
            ray.shutdown()
            if attempt == STARTS:
                raise
    return ray


def on_machine(address: str) -> dict[str, float]:
    """Return the resources that place an actor on the machine with this address.

    Ray gives each node one unit of a resource that is named by its address.
    """
    return {f"node:{address}": 0.001}


class Team:
    """Processes that start when they are first needed, and then wait for calls.

    Args:
        ray: the Ray that this process started.
        kind: the class of the actors, called without arguments in each process.
        places: the address of each process's machine; empty for this machine.
    """

    def __init__(self, ray: Any, kind: type, places: Sequence[str] = ()) -> None:
        self.ray, self._places = ray, places
        # They wait most of the time, so none requests a core.
        self._kind = ray.remote(num_cpus=0)(kind)
        self._members: list[Any] = []

    def call(self, count: int, method: str, *arguments: Any) -> list[Any]:
        """Call a method of the first ``count`` in parallel; return the results."""
        return self.call_each(method, [arguments] * count)

    def call_each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method in parallel, with separate arguments for each process."""
        for number in range(len(self._members), len(arguments)):
            place = on_machine(self._places[number]) if self._places else {}
            self._members.append(self._kind.options(resources=place).remote())
        members = zip(self._members, arguments, strict=False)
        calls = [getattr(member, method).remote(*own) for member, own in members]
        answers: list[Any] = self.ray.get(calls)
        return answers


# -- measurements ----------------------------------------------------------------------

NEVER = 10**9
"""A period that no run reaches, so there is no exchange."""

TRIAL = 5
"""The steps of DDP before its steps are counted."""


def measure(
    settings: TeamSettings,
    team: Team,
    center: RayCenter,
    meeting: Path,
    settling: float = 0.0,
) -> Outcome:
    """Measure a worker alone, DDP, and workers that exchange at each period.

    Args:
        center: the center that the workers share; the first worker starts it.
        meeting: the file by which the ranks of DDP meet.
        settling: additional seconds until the order of pushes is settled.
    """

    def rate(workers: int, period: int) -> float:
        """Return the steps per second of workers that share the center."""
        # The first worker starts the center, if there is none yet.
        team.call(1, "join", settings, center, period)
        team.call(workers, "join", settings, center, period)
        round_seconds = min(period, max(PERIODS)) * settings.step_ms / 1000
        begin = time.time() + 0.1 + round_seconds + settling
        counts = team.call(workers, "train", begin, begin + settings.window)
        return float(sum(counts) / settings.window)

    def center_seconds() -> float:
        """Return the CPU time of the center's process so far."""
        actor = team.ray.get_actor(center.name, NAMESPACE)
        call = actor.__ray_call__.remote(lambda _: time.process_time())
        return float(team.ray.get(call))

    def rounds() -> int:
        return int(center.status()["rounds"])

    alone = 1 / rate(1, NEVER)
    seconds, before = center_seconds(), rounds()
    summary = {"seconds/step": alone, "seconds/exchange": 1 / rate(1, 1) - alone}
    summary["seconds/center"] = (center_seconds() - seconds) / (rounds() - before)
    summary["steps/ddp"] = _ddp(settings, team, meeting)
    for period in PERIODS:
        before = rounds()
        summary[f"steps/{period}"] = rate(settings.workers, period)
        if rounds() == before:
            raise HarnessError(f"no worker pushed at a period of {period}.")
    center.remove()
    return Outcome("ok", "", {}, summary)


def _ddp(settings: TeamSettings, team: Team, meeting: Path) -> float:
    """Return the steps per second of DDP, of all ranks."""
    ranks = settings.workers
    places = [(settings, str(meeting), ranks, rank) for rank in range(ranks)]
    team.call_each("connect", places)
    seconds = max(team.call(ranks, "reduce", TRIAL)) / TRIAL
    steps = max(TRIAL, round(settings.window / seconds))
    seconds = max(team.call(ranks, "reduce", steps))
    team.call(ranks, "disconnect")
    return float(ranks * steps / seconds)
