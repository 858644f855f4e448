"""One run: a number of workers, with DDP and with AGN, in one set of processes."""

from __future__ import annotations

import functools
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.worker_throughput.local_ray import Team, require_ray, stop_ray
from harness.tasks.worker_throughput.settings import PERIODS, PUSHERS, Settings
from lockstep.ray import RayCenter
from lockstep.ray.actor import NAMESPACE

__all__ = ["prepare", "train"]

NEVER = 10**9
"""A period after which nobody looks."""

TRIAL = 5
"""Steps of DDP that are taken before its steps are counted."""

COUNTERS = Path("/proc/net/dev")
"""Where Linux counts the bytes of each network interface."""

SENT = 8
"""The column of the bytes that were sent."""

SMALL_PUSHES, LARGE_PUSHES = 100, 3
"""Pushes of each worker where the center alone is measured."""


def prepare(backend: str, device: str) -> None:
    """Import the framework; raise if it, the CPU or Ray is missing.

    Raises:
        HarnessError: one of them is.
    """
    backends.require_cpu(backend, device)
    backends.prepare(__package__, backend, device)
    require_ray()


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; nothing in it is drawn at random, so a seed is a repetition.

    Summary, in seconds, steps a second of all workers, rounds a second, and bytes that
    a worker sends a step:

    - of one worker: ``seconds/step`` without an exchange, ``seconds/exchange``, what an
      exchange adds to it, ``seconds/center``, the center's CPU time for one;
    - ``steps/ddp``, ``steps/PERIOD``, ``bytes/ddp`` (where the system counts them) and
      ``bytes/PERIOD``;
    - ``center/small``, ``adder/small``, ``center/large`` and ``adder/large``: pushes a
      second that the center takes, and an actor that only adds.

    Series: ``staleness`` and, for each of its values, ``pushes/PERIOD``.
    """
    settings = Settings(**config)
    module = backends.model(__package__, backend)
    try:
        measured = Measurement(settings, module, _team(module.Worker))
        with tempfile.TemporaryDirectory() as folder:
            return measured.all(Path(folder))
    except BaseException:
        # Some processes may wait for one that failed.
        _team.cache_clear()
        stop_ray()
        raise


@functools.cache
def _team(kind: type) -> Team:
    """Return the processes of all runs: to start them takes longer than a run."""
    return Team(kind)


class Measurement:
    """What a run measures, one part after the other."""

    def __init__(self, settings: Settings, module: Any, team: Team) -> None:
        self.settings, self.module, self.team = settings, module, team
        self.workers = settings.workers
        self.summary: dict[str, float] = {}

    def all(self, folder: Path) -> Outcome:
        """Measure everything."""
        self.center = RayCenter(f"center-{folder.name}", directory=folder / "center")
        self.one_worker()
        self.synchronous(folder / "ranks")
        stale = {period: self.asynchronous(period) for period in PERIODS}
        self.center.remove()
        for name, weights, count in (
            ("small", self.settings.weights, SMALL_PUSHES),
            ("large", self.settings.large_weights, LARGE_PUSHES),
        ):
            self.center_alone(folder / name, name, weights, count)
        longest = max((max(counts, default=0) for counts in stale.values()), default=0)
        series = {"staleness": [float(k) for k in range(longest + 1)]}
        for period, counts in stale.items():
            found = [float(counts[k]) for k in range(longest + 1)]
            series[f"pushes/{period}"] = found
        return Outcome("ok", "", series, self.summary)

    def one_worker(self) -> None:
        """Measure a step without an exchange, and what an exchange adds to it."""
        alone = 1 / self.rate(1, NEVER)
        before, pushes = self.center_seconds(), self.center.status()["rounds"]
        with_exchange = 1 / self.rate(1, 1)
        pushes = self.center.status()["rounds"] - pushes
        self.summary |= {
            "seconds/step": alone,
            "seconds/exchange": with_exchange - alone,
            "seconds/center": (self.center_seconds() - before) / pushes,
        }

    def center_seconds(self) -> float:
        """Return the CPU time that the center's process has taken so far."""
        actor = self.team.ray.get_actor(self.center.name, NAMESPACE)
        call = actor.__ray_call__.remote(lambda _: time.process_time())
        seconds: float = self.team.ray.get(call)
        return seconds

    def rate(self, workers: int, period: int) -> float:
        """Return the steps a second of some workers that share the center."""
        arguments = (self.settings, self.center, period)
        # The first fills the center, if there is none yet.
        self.team.call(1, "join", *arguments)
        self.team.call(workers, "join", *arguments)
        # Each finds its place in the order of pushes before steps are counted.
        first_round = min(period, max(PERIODS)) * self.settings.step_ms / 1000
        begin = time.time() + 0.1 + first_round
        end = begin + self.settings.window
        counts = self.team.call(workers, "train", begin, end)
        return float(sum(counts) / self.settings.window)

    def asynchronous(self, period: int) -> Counter[int]:
        """Measure steps and bytes; return how stale each push was."""
        before = self.center.status()
        self.summary[f"steps/{period}"] = self.rate(self.workers, period)
        after = self.center.status()
        pushes, pushed = (after[k] - before[k] for k in ("rounds", "bytes_pushed"))
        if not pushes:
            raise HarnessError(f"no worker pushed at a period of {period}.")
        self.summary[f"bytes/{period}"] = pushed / pushes / period
        return Counter(after["staleness"]) - Counter(before["staleness"])

    def synchronous(self, meeting: Path) -> None:
        """Measure steps and bytes of DDP."""
        ranks, settings = self.workers, self.settings
        places = [(settings, str(meeting), ranks, rank) for rank in range(ranks)]
        self.team.call_each("connect", places)
        seconds = max(self.team.call(ranks, "reduce", TRIAL)) / TRIAL
        steps = max(TRIAL, round(settings.window / seconds))
        before = loopback_bytes()
        seconds = max(self.team.call(ranks, "reduce", steps))
        after = loopback_bytes()
        self.team.call(ranks, "disconnect")
        self.summary["steps/ddp"] = ranks * steps / seconds
        if before is not None and after is not None:
            self.summary["bytes/ddp"] = (after - before) / ranks / steps

    def center_alone(self, folder: Path, name: str, weights: int, count: int) -> None:
        """Measure how many pushes a center takes, and an actor that only adds."""
        center = RayCenter(f"{name}-{folder.parent.name}", directory=folder)
        ray = self.team.ray
        adder = ray.remote(num_cpus=0)(self.module.Adder).remote(weights)
        self.team.call(1, "push", center, weights, 1)
        for what, method, target in (
            ("center", "push", center),
            ("adder", "add", adder),
        ):
            times = self.team.call(PUSHERS, method, target, weights, count)
            self.summary[f"{what}/{name}"] = PUSHERS * count / _duration(times)
        center.remove()
        ray.kill(adder)


def _duration(times: Sequence[Any]) -> float:
    """Return the seconds from the first beginning to the last end."""
    return float(max(t.end for t in times) - min(t.begin for t in times))


def loopback_bytes() -> int | None:
    """Return the bytes that were sent on loopback; None where nobody counts them."""
    try:
        lines = COUNTERS.read_text("utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[SENT])
    return None
