"""Steps a second on one machine, and what the queueing model expects of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.worker_team.report import METRICS as METRICS
from harness.tasks.worker_team.report import draw_rates, modes


def judge(records: Sequence[Record]) -> Judgement:
    good = [record for record in records if record.status == "ok"]
    return Judgement({"steps": modes(good), "center": center(good)} if good else {})


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
        yield draw_rates(finding, f"{lines}times of one worker.")
