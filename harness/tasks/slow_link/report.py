"""The queueing model's prediction, from measurements of the link and of one worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.simulator.planner import Setting
from harness.tasks.slow_link.task import Settings
from harness.tasks.worker_team import tables
from harness.tasks.worker_team.drawing import histograms, rates
from harness.tasks.worker_team.findings import match as match
from harness.tasks.worker_team.findings import of_good_runs, team_metrics
from harness.tasks.worker_team.tables import Law


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


def _expected(record: Record, period: int) -> float:
    return setting(record).steps(period, record.config["workers"])


def _most(record: Record, period: int) -> float:
    return setting(record).most_steps(period, record.config["workers"])


def _reduced(record: Record) -> float:
    return setting(record).synchronous_steps(record.config["workers"])


LAW = Law(_expected, _most, _reduced)

APART = ("workers",)
"""The settings that distinguish runs in the tables."""

ONE_WORKER = {
    **tables.MILLISECONDS,
    "link_mbit": ("link/bandwidth", 8e-6),
    "latency_ms": ("link/latency", 1e3),
}


def _reduced_over_expected(record: Record) -> float:
    assert LAW.reduced is not None
    return record.summary["steps/ddp"] / LAW.reduced(record)


METRICS = {
    **team_metrics(LAW),
    "DDP over expected": Metric(
        of_good_runs(_reduced_over_expected), "ratio", "larger"
    ),
}
"""The metrics of a run, which are all comparisons within it."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records."""
    good = [record for record in records if record.status == "ok"]
    if not good:
        return Judgement()
    contents = {
        "steps": tables.modes(good, LAW),
        "one worker": tables.medians(good, ONE_WORKER),
        "staleness": tables.staleness(good),
    }
    return Judgement(tables=contents)


LINES = (
    "Lines: what the queueing model expects on a link that was measured in the same "
    "run."
)


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    if finding.tables:
        yield rates(finding, LINES)
        yield histograms(finding)
