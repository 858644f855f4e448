"""Tables of the speedup of each precision in examples per second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.judgement.finding import Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Interval, overlap
from harness.tasks.cells import on_gpus
from harness.tasks.throughput import tables

__all__ = ["APART", "METRICS", "judge", "match"]

APART = ("mode", "depth", "width", "batch")
"""The settings that distinguish runs in the tables."""

SLACK = 0.1
"""The largest distance of intervals of rates, because clocks and cooling differ."""

NOTHING = "Not measured yet on a GPU; runs on a CPU are not counted."


def judge(records: Sequence[Record]) -> Judgement:
    """Make a table of the runs on GPUs, or say that there are none."""
    usable = on_gpus(records)
    if not usable:
        return Judgement(note=NOTHING)
    table = tables.rates(usable)
    return Judgement(tables={"rates": table})


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare rates on the same kind of device; the table may be empty."""
    keys = ["mode", "device", "net"]
    empty = pd.DataFrame(columns=[*keys, "rate", "rate_low", "rate_high"])
    both = published.get("rates", empty).merge(
        own.get("rates", empty), on=keys, suffixes=("_published", "_own")
    )
    agree = [
        overlap(_rate(row, "published"), _rate(row, "own"), SLACK)
        for _, row in both.iterrows()
    ]
    return both.assign(matches=pd.Series(agree, index=both.index, dtype=bool))


def _on_gpu(record: Record) -> float:
    """Return the rate of a run on a GPU; NaN for other runs, which are not judged."""
    return record.summary["rate"] if on_gpus([record]) else np.nan


METRICS = {"rate": Metric(_on_gpu, "examples a second", "larger")}
"""The metrics by which runs are compared."""


def _rate(row: pd.Series, whose: str) -> Interval:
    return Interval(
        *(row[f"{name}_{whose}"] for name in ("rate", "rate_low", "rate_high"))
    )
