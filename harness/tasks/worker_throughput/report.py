"""The queueing model's prediction for workers, from the measured times of one worker.

On one machine there is no link, so the center is the only station. A single worker
never waits. So the time of an exchange has two parts: the worker's own part, and the
center's part, in which it serves one worker after the other. The latter is the CPU time
of the center's process per exchange.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.worker_team import report as team


def queue(record: Record, period: int) -> tuple[float, tuple[float]]:
    """Return Z and S: the seconds of a round without the center, and those of it."""
    step, exchange, center = (
        record.summary[f"seconds/{name}"] for name in ("step", "exchange", "center")
    )
    return period * step + max(0.0, exchange - center), (center,)


METRICS = team.metrics(queue)
"""The metrics of a run, which are all comparisons within it."""


def judge(records: Sequence[Record]) -> Judgement:
    good = [record for record in records if record.status == "ok"]
    if not good:
        return Judgement()
    return Judgement({"steps": team.modes(good, queue), "center": center(good)})


def center(records: Sequence[Record]) -> pd.DataFrame:
    """Pushes of a large model per second of the center, over those of a plain actor.

    Over all runs, because the number of workers that train later has no effect here.
    """
    center, adder = (
        np.array([record.summary[f"{what}/large"] for record in records])
        for what in ("center", "adder")
    )
    row = {
        "model_mb": records[0].config["large_mb"],
        **bootstrap(median, center).named("center"),
        **bootstrap(median, adder).named("adder"),
        **bootstrap(median, center / adder).named("ratio"),
        "runs": len(records),
    }
    return pd.DataFrame([row])


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the steps per second."""
    if finding.tables:
        lines = "Lines through AGN's points: what the queueing model expects from the "
        yield team.draw_rates(finding, f"{lines}times of one worker.")
