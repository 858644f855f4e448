"""The queueing model's prediction, from measurements of the link and of one worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.record import Record
from harness.simulator.planner import Setting
from harness.tasks.slow_link.task import Settings
from harness.tasks.worker_team import report as team
from harness.tasks.worker_team.report import APART as APART

ONE_WORKER = {
    **team.MILLISECONDS,
    "link_mbit": ("link/bandwidth", 8e-6),
    "latency_ms": ("link/latency", 1e3),
}


def setting(record: Record) -> Setting:
    """Return the setting of a run, with the numbers that it measured.

    A step is timed without an exchange, the link is measured by a program that sends
    zeros, and the center's time is the CPU time of its process.
    """
    numbers = record.summary
    return Setting(
        step_seconds=numbers["seconds/step"],
        model_bytes=Settings(**record.config).model_bytes,
        bytes_per_second=numbers["link/bandwidth"],
        latency_seconds=numbers["link/latency"],
        center_seconds=numbers["seconds/center"],
    )


def queue(record: Record, period: int) -> tuple[float, tuple[float, ...]]:
    """Return Z and S of a run at a period."""
    of = setting(record)
    return of.think(period), of.services


def reduced(record: Record) -> float:
    """Return the steps per second that a ring all-reduce in every step allows."""
    return setting(record).synchronous_steps(record.config["workers"])


LAW = team.Law(queue, reduced)

METRICS = {
    **team.metrics(LAW),
    "DDP over expected": team.ratio(lambda r: r.summary["steps/ddp"] / reduced(r)),
}
"""The metrics of a run, which are all comparisons within it."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records."""
    good = [record for record in records if record.status == "ok"]
    if not good:
        return Judgement()
    contents = {
        "steps": team.modes(good, LAW),
        "one worker": team.medians(good, ONE_WORKER),
        "staleness": team.staleness(good),
    }
    return Judgement(tables=contents)


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    yield from team.drawings(
        finding,
        "Lines: what the queueing model expects on a link that was measured in the "
        "same run.",
    )
