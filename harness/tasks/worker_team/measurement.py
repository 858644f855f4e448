"""What every run with workers measures, one part after the other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from harness.errors import HarnessError
from harness.tasks.worker_team.local_ray import Team
from harness.tasks.worker_team.settings import PERIODS, TeamSettings
from lockstep.ray import RayCenter
from lockstep.ray.actor import NAMESPACE

__all__ = ["Measurement", "histograms", "sent_bytes"]

NEVER = 10**9
"""A period after which nobody looks."""

TRIAL = 5
"""Steps of DDP that are taken before its steps are counted."""

SENT = 8
"""The column of the bytes that were sent in the file where Linux counts them."""


class Measurement:
    """What the workers of a team do, and what their summary says of it.

    Args:
        settings: of the run.
        team: the processes.
        center: which the workers share; there need not be one yet.
    """

    def __init__(self, settings: TeamSettings, team: Team, center: RayCenter) -> None:
        self.settings, self.team, self.center = settings, team, center
        self.workers = settings.workers
        self.summary: dict[str, float] = {}

    def counted_bytes(self) -> int | None:
        """Return the bytes that all workers have sent so far; None: nobody counts."""
        raise NotImplementedError

    def seconds_to_settle(self, period: int) -> float:
        """Return how long workers find their places in the order of pushes."""
        return 0.1 + min(period, max(PERIODS)) * self.settings.step_ms / 1000

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
        begin = time.time() + self.seconds_to_settle(period)
        end = begin + self.settings.window
        counts = self.team.call(workers, "train", begin, end)
        return float(sum(counts) / self.settings.window)

    def asynchronous(self, period: int) -> Counter[int]:
        """Measure steps; return how stale each push was.

        Bytes are those that the center was given, which are the weights and no more.
        """
        before = self.center.status()
        self.summary[f"steps/{period}"] = self.rate(self.workers, period)
        after = self.center.status()
        pushes, pushed = (after[k] - before[k] for k in ("rounds", "bytes_pushed"))
        if not pushes:
            raise HarnessError(f"no worker pushed at a period of {period}.")
        self.summary[f"bytes/{period}"] = pushed / pushes / period
        return Counter(after["staleness"]) - Counter(before["staleness"])

    def synchronous(self, meeting: Path) -> None:
        """Measure steps and bytes of DDP, whose ranks meet at a path."""
        ranks, settings = self.workers, self.settings
        places = [(settings, str(meeting), ranks, rank) for rank in range(ranks)]
        self.team.call_each("connect", places)
        seconds = max(self.team.call(ranks, "reduce", TRIAL)) / TRIAL
        steps = max(TRIAL, round(settings.window / seconds))
        before = self.counted_bytes()
        seconds = max(self.team.call(ranks, "reduce", steps))
        after = self.counted_bytes()
        self.team.call(ranks, "disconnect")
        self.summary["steps/ddp"] = ranks * steps / seconds
        if before is not None and after is not None:
            self.summary["bytes/ddp"] = (after - before) / ranks / steps


def histograms(stale: Mapping[int, Counter[int]]) -> dict[str, list[float]]:
    """Return series: ``staleness`` and, for each of its values, ``pushes/PERIOD``."""
    longest = max((max(counts, default=0) for counts in stale.values()), default=0)
    series = {"staleness": [float(k) for k in range(longest + 1)]}
    for period, counts in stale.items():
        series[f"pushes/{period}"] = [float(counts[k]) for k in range(longest + 1)]
    return series


def sent_bytes(counters: Path, interface: str) -> int | None:
    """Return the bytes that an interface has sent; None where nobody counts them.

    Args:
        counters: ``/proc/net/dev``, or that of a process in another network namespace.
        interface: its name.
    """
    try:
        lines = counters.read_text("utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, counts = line.partition(":")
        if name.strip() == interface:
            return int(counts.split()[SENT])
    return None
