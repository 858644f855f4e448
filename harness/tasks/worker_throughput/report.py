"""The queueing model's prediction for workers, from the measured times of one worker.

On one machine there is no link, so the center is the only station. A single worker
never waits. So the time of an exchange has two parts: the worker's own part, and the
center's part, in which it serves one worker after the other. The latter is the CPU time
of the center's process per exchange.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.simulator.queueing import bound, mean_values
from harness.statistics import bootstrap, median
from harness.tasks.worker_team import tables
from harness.tasks.worker_team.drawing import histograms, rates
from harness.tasks.worker_team.findings import match as match
from harness.tasks.worker_team.findings import of_good_runs, team_metrics
from harness.tasks.worker_team.tables import Law


def expected_steps(alone: Mapping[str, float], period: int, workers: int) -> float:
    """Return the steps per second of all workers by mean value analysis.

    Args:
        alone: ``seconds/step``, ``seconds/exchange`` and ``seconds/center`` of one
            worker.
        period: local steps between two exchanges.
        workers: the number of workers.
    """
    think, service = _times(alone, period)
    return period * mean_values(think, (service,), workers)[-1].throughput


def most_steps(alone: Mapping[str, float], period: int, workers: int) -> float:
    """Return the asymptote of :func:`expected_steps`."""
    think, service = _times(alone, period)
    return period * bound(think, (service,), workers)


def _times(alone: Mapping[str, float], period: int) -> tuple[float, float]:
    """Return Z and S."""
    step, exchange, center = (
        alone[f"seconds/{name}"] for name in ("step", "exchange", "center")
    )
    own = max(0.0, exchange - center)
    return period * step + own, center


def _expected(record: Record, period: int) -> float:
    return expected_steps(record.summary, period, record.config["workers"])


def _most(record: Record, period: int) -> float:
    return most_steps(record.summary, period, record.config["workers"])


LAW = Law(_expected, _most)


def center(records: Sequence[Record]) -> pd.DataFrame:
    """Pushes per second of the center, and of an actor that only adds.

    Over all runs, because the number of workers that train later has no effect here.
    """
    rows = []
    for size, setting in (("small", "model_mb"), ("large", "large_mb")):
        pushes = {
            what: np.array([r.summary[f"{what}/{size}"] for r in records])
            for what in ("center", "adder")
        }
        row: dict[str, Any] = {"model_mb": records[0].config[setting]}
        for what, values in pushes.items():
            row |= bootstrap(median, values).named(what)
        ratio = pushes["center"] / pushes["adder"]
        row |= bootstrap(median, ratio).named("ratio")
        rows.append({**row, "runs": len(records)})
    return pd.DataFrame(rows)


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


LINES = (
    "Lines through AGN's points: what the queueing model expects from the times of one "
    "worker."
)


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    if finding.tables:
        yield rates(finding, LINES)
        yield histograms(finding)
