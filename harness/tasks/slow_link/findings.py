"""Tables of what AGN saves on slow links, and whether this was predicted."""

from __future__ import annotations

from collections.abc import Sequence

from harness.judgement.finding import Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.slow_link.law import LAW
from harness.tasks.worker_team import tables
from harness.tasks.worker_team.findings import match, of_good_runs, team_metrics

__all__ = ["APART", "METRICS", "judge", "match"]

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
