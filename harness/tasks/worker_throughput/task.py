"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.schema import Positive, settings
from harness.tasks.worker_team.local_ray import Team, local_ray, require_ray, stop_ray
from harness.tasks.worker_team.measurement import Measurement, histograms, sent_bytes
from harness.tasks.worker_team.settings import PERIODS, TeamSettings, weights_of
from lockstep.ray import RayCenter

PUSHERS = 2
"""The number of workers that push without pauses to measure the center alone."""


@settings
class Settings(TeamSettings):
    """The settings of one run."""

    large_mb: Positive  # megabytes of a push of the large model


COUNTERS = Path("/proc/net/dev")
"""The file of Linux with the bytes of each network interface."""

PUSHES = {"small": 100, "large": 3}
"""The pushes of each worker to measure the center alone."""


def prepare(backend: str, device: str) -> None:
    """Import the framework; raise if it, the CPU or Ray is missing.

    Raises:
        HarnessError: one of them is missing.
    """
    backends.require_cpu(backend, device)
    backends.prepare(__package__, backend, device)
    require_ray("worker_throughput")


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
    module = backends.model(__package__, backend)
    try:
        team = _team(module.Worker)
        with tempfile.TemporaryDirectory() as folder:
            return Loopback(of, module, team, Path(folder)).all()
    except BaseException:
        # Some processes may wait for a failed one.
        _team.cache_clear()
        stop_ray()
        raise


@functools.cache
def _team(kind: type) -> Team:
    """Return the processes of all runs, as starting them takes longer than a run."""
    return Team(local_ray(), kind)


class Loopback(Measurement):
    """The measurements of a run on one machine.

    Args:
        settings: the settings of the run.
        module: the backend's model file.
        team: the processes.
        folder: the folder for files of the run; its name is in the centers' names.
    """

    def __init__(
        self, settings: Settings, module: Any, team: Team, folder: Path
    ) -> None:
        center = RayCenter(f"center-{folder.name}", directory=folder / "center")
        super().__init__(settings, team, center)
        self.module, self.folder = module, folder
        self.sizes = {"small": settings.weights, "large": weights_of(settings.large_mb)}

    def all(self) -> Outcome:
        """Measure everything."""
        self.one_worker()
        self.synchronous(self.folder / "ranks")
        stale = {period: self.asynchronous(period) for period in PERIODS}
        self.center.remove()
        for size, count in PUSHES.items():
            self.center_alone(size, count)
        return Outcome("ok", "", histograms(stale), self.summary)

    def counted_bytes(self) -> int | None:
        """Return the bytes sent on loopback, by the ranks and by other processes."""
        return sent_bytes(COUNTERS, "lo")

    def center_alone(self, size: str, count: int) -> None:
        """Measure pushes per second of a center, and of an actor that only adds."""
        name, weights = f"{size}-{self.folder.name}", self.sizes[size]
        center = RayCenter(name, directory=self.folder / size)
        ray = self.team.ray
        adder = ray.remote(num_cpus=0)(self.module.Adder).remote(weights)
        self.team.call(1, "push", center, weights, 1)
        for what, method, target in (
            ("center", "push", center),
            ("adder", "add", adder),
        ):
            times = self.team.call(PUSHERS, method, target, weights, count)
            self.summary[f"{what}/{size}"] = PUSHERS * count / _duration(times)
        center.remove()
        ray.kill(adder)


def _duration(times: Sequence[Any]) -> float:
    """Return the seconds from the first begin to the last end."""
    return float(max(t.end for t in times) - min(t.begin for t in times))
