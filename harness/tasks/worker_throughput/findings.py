"""Tables of what AGN saves against DDP, and whether the queueing model is right."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from harness.judgement.finding import Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.worker_team import tables
from harness.tasks.worker_team.findings import match, of_good_runs, team_metrics
from harness.tasks.worker_throughput.law import LAW
from harness.tasks.worker_throughput.tables import center

__all__ = ["APART", "METRICS", "judge", "match"]

APART = ("workers",)
"""The settings that distinguish runs in the tables."""


def _over_adder(size: str, record: Record) -> float:
    return record.summary[f"center/{size}"] / record.summary[f"adder/{size}"]


METRICS = {
    **team_metrics(LAW),
    **{
        f"center over adder, {size}": Metric(
            of_good_runs(partial(_over_adder, size)), "ratio", "larger"
        )
        for size in ("small", "large")
    },
}
"""The metrics of a run, which are all comparisons within it."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records."""
    good = [record for record in records if record.status == "ok"]
    if not good:
        return Judgement()
    contents = {
        "steps": tables.modes(good, LAW),
        "center": center(good),
        "one worker": tables.medians(good, tables.MILLISECONDS),
        "staleness": tables.staleness(good),
    }
    return Judgement(tables=contents)
