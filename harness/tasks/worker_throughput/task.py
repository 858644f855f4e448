"""Steps per second of workers on one machine and its loopback: AGN on Ray, and DDP."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.schema import Positive, settings
from harness.tasks.worker_team.task import (
    Measurement,
    Team,
    TeamSettings,
    sent_bytes,
    start_ray,
    weights_of,
)
from harness.tasks.worker_team.task import prepare as prepare
from lockstep.ray import RayCenter

PUSHERS = 2
"""The number of workers that push without pauses to measure the center alone."""

PUSHES = {"small": 100, "large": 3}
"""The pushes of each worker to measure the center alone."""

COUNTERS = Path("/proc/net/dev")
"""The file of Linux with the bytes of each network interface."""


@settings
class Settings(TeamSettings):
    """The settings of one run."""

    large_mb: Positive  # megabytes of a push of the large model


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; nothing is random, so a seed is a repetition.

    Summary, in seconds, steps per second of all workers, rounds per second, and bytes
    that a worker sends per step:

    - of one worker: ``seconds/step`` without an exchange, ``seconds/exchange``, the
      additional time of an exchange, ``seconds/center``, its CPU time at the center;
    - ``steps/ddp``, ``steps/PERIOD``, ``bytes/ddp`` (if the system counts them) and
      ``bytes/PERIOD``;
    - ``center/small``, ``adder/small``, ``center/large`` and ``adder/large``: pushes
      per second of the center, and of an actor that only adds.

    Series: ``staleness`` and, for each of its values, ``pushes/PERIOD``.
    """
    of = Settings(**config)
    module = backends.model("worker_throughput", backend)
    try:
        team = _team(module.Worker)
        with tempfile.TemporaryDirectory() as folder:
            return _measured(of, team, module.Adder, Path(folder))
    except BaseException:
        import ray

        # Some processes may wait for a failed one.
        _team.cache_clear()
        ray.shutdown()
        raise


@functools.cache
def _team(kind: type) -> Team:
    """Return the processes of all runs, as starting them takes longer than a run."""
    return Team(start_ray(), kind)


def _measured(of: Settings, team: Team, adder: type, folder: Path) -> Outcome:
    """Do a run; the name of its folder is in the centers' names."""
    center = RayCenter(f"center-{folder.name}", directory=folder / "center")
    sent = functools.partial(sent_bytes, COUNTERS, "lo") if COUNTERS.exists() else None
    outcome = Measurement(of, team, center, sent).run(folder / "ranks")
    small = _pushes("small", of.weights, team, adder, folder)
    large = _pushes("large", weights_of(of.large_mb), team, adder, folder)
    return replace(outcome, summary={**outcome.summary, **small, **large})


def _pushes(
    size: str, weights: int, team: Team, kind: type, folder: Path
) -> dict[str, float]:
    """Return pushes per second of a center, and of an actor that only adds."""
    center = RayCenter(f"{size}-{folder.name}", directory=folder / size)
    adder = team.ray.remote(num_cpus=0)(kind).remote(weights)
    team.call(1, "push", center, weights, 1)
    rates = {}
    for what, method, target in ("center", "push", center), ("adder", "add", adder):
        times = team.call(PUSHERS, method, target, weights, PUSHES[size])
        begins, ends = zip(*times, strict=True)
        seconds = max(ends) - min(begins)
        rates[f"{what}/{size}"] = PUSHERS * PUSHES[size] / seconds
    center.remove()
    team.ray.kill(adder)
    return rates
