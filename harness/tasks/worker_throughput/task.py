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
    Team,
    TeamSettings,
    measure,
    start_ray,
    weights_of,
)
from harness.tasks.worker_team.task import prepare as prepare
from lockstep.ray import RayCenter

PUSHERS, PUSHES = 2, 3
"""The workers that push without pauses, and how often each of them, to measure the
center alone."""


@settings
class Settings(TeamSettings):
    large_mb: Positive  # megabytes of a push of the large model


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; nothing is random, so a seed is a repetition.

    Summary, in seconds, and in steps per second of all workers:

    - of one worker: ``seconds/step`` without an exchange, ``seconds/exchange``, the
      additional time of an exchange, ``seconds/center``, its CPU time at the center;
    - ``steps/ddp`` and ``steps/PERIOD``;
    - ``center/large`` and ``adder/large``: pushes of the large model per second of the
      center, and of an actor that only adds.
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
    outcome = measure(of, team, center, folder / "ranks")
    pushes = _pushes(weights_of(of.large_mb), team, adder, folder)
    return replace(outcome, summary={**outcome.summary, **pushes})


def _pushes(weights: int, team: Team, kind: type, folder: Path) -> dict[str, float]:
    """Return pushes per second of a center, and of an actor that only adds."""
    center = RayCenter(f"large-{folder.name}", directory=folder / "large")
    adder = team.ray.remote(num_cpus=0)(kind).remote(weights)
    team.call(1, "push", center, weights, 1)
    rates = {}
    for what, method, target in ("center", "push", center), ("adder", "add", adder):
        times = team.call(PUSHERS, method, target, weights, PUSHES)
        begins, ends = zip(*times, strict=True)
        rates[f"{what}/large"] = PUSHERS * PUSHES / (max(ends) - min(begins))
    center.remove()
    team.ray.kill(adder)
    return rates
