"""The measurements of every run with workers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from harness.errors import HarnessError
from harness.tasks.worker_team.local_ray import Team
from harness.tasks.worker_team.settings import PERIODS, TeamSettings
from lockstep.ray import RayCenter
from lockstep.ray.center import NAMESPACE

__all__ = ["Measurement", "histograms", "sent_bytes"]

NEVER = 10**9
"""A period that no run reaches, so there is no exchange."""

TRIAL = 5
"""The steps of DDP before its steps are counted."""

SENT = 8
"""The column of the sent bytes in Linux's file of network counters."""


class Measurement:
    """Measure the workers of a team and collect the summary.

    Args:
        settings: the settings of the run.
        team: the processes.
        center: the center that the workers share; it need not be started yet.
    """

    def __init__(self, settings: TeamSettings, team: Team, center: RayCenter) -> None:
        self.settings, self.team, self.center = settings, team, center
        self.workers = settings.workers
        self.summary: dict[str, float] = {}

    def counted_bytes(self) -> int | None:
        """Return the bytes that all workers have sent so far; None if unknown."""
        raise NotImplementedError

    def seconds_to_settle(self, period: int) -> float:
        """Return the seconds until the order of the workers' pushes is settled."""
        return 0.1 + min(period, max(PERIODS)) * self.settings.step_ms / 1000

    def one_worker(self) -> None:
        """Measure the time of a step without an exchange, and of an exchange."""
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
        """Return the CPU time of the center's process so far."""
        actor = self.team.ray.get_actor(self.center.name, NAMESPACE)
        call = actor.__ray_call__.remote(lambda _: time.process_time())
        seconds: float = self.team.ray.get(call)
        return seconds

    def rate(self, workers: int, period: int) -> float:
        """Return the steps per second of ``workers`` workers that share the center."""
        arguments = (self.settings, self.center, period)
        # The first worker starts the center, if there is none yet.
        self.team.call(1, "join", *arguments)
        self.team.call(workers, "join", *arguments)
        begin = time.time() + self.seconds_to_settle(period)
        end = begin + self.settings.window
        counts = self.team.call(workers, "train", begin, end)
        return float(sum(counts) / self.settings.window)

    def asynchronous(self, period: int) -> Counter[int]:
        """Measure steps and bytes; return the staleness of the pushes.

        The bytes are counted at the center, so they are only those of the weights.
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
        """Measure steps and bytes of DDP, whose ranks share the file ``meeting``."""
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
    """Return the bytes that an interface has sent; None without a counter.

    Args:
        counters: ``/proc/net/dev``, or the same file of a process in another network
            namespace.
        interface: the name of the interface.
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
