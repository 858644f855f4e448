"""The queueing model's prediction for workers, from the measured times of one worker.

On one machine there is no link, so the center is the only station. A single worker
never waits. So the time of an exchange has two parts: the worker's own part, and the
center's part, in which it serves one worker after the other. The latter is the CPU time
of the center's process per exchange.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.worker_team import report as team
from harness.tasks.worker_team.report import APART as APART


def queue(record: Record, period: int) -> tuple[float, tuple[float]]:
    """Return Z and S: the seconds of a round without the center, and those of it."""
    step, exchange, center = (
        record.summary[f"seconds/{name}"] for name in ("step", "exchange", "center")
    )
    return period * step + max(0.0, exchange - center), (center,)


LAW = team.Law(queue)


def over_adder(size: str, record: Record) -> float:
    """Return the pushes of the center, relative to those of the plain actor."""
    return record.summary[f"center/{size}"] / record.summary[f"adder/{size}"]


METRICS = {
    **team.metrics(LAW),
    "center over adder, small": team.ratio(partial(over_adder, "small")),
    "center over adder, large": team.ratio(partial(over_adder, "large")),
}
"""The metrics of a run, which are all comparisons within it."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records."""
    good = [record for record in records if record.status == "ok"]
    if not good:
        return Judgement()
    return Judgement({"steps": team.modes(good, LAW), "center": center(good)})


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
        values = {**pushes, "ratio": pushes["center"] / pushes["adder"]}
        row: dict[str, Any] = {"model_mb": records[0].config[setting]}
        for what, of_runs in values.items():
            row |= bootstrap(median, of_runs).named(what)
        rows.append({**row, "runs": len(records)})
    return pd.DataFrame(rows)


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the steps per second."""
    if finding.tables:
        lines = "Lines through AGN's points: what the queueing model expects from the "
        yield team.draw_rates(finding, f"{lines}times of one worker.")
