"""Tables of what the wrappers cost on a GPU, with and without a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.judgement.finding import Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Interval, overlap
from harness.tasks.cells import on_gpus
from harness.tasks.gpu_steps import tables

__all__ = ["APART", "METRICS", "judge", "match"]

APART = ("stack", "way")
"""The settings that distinguish runs in the tables."""

SLACK = 0.2
"""The largest distance of intervals of times, because processors and GPUs differ."""

NOTHING = "Not measured yet on a GPU; runs on a CPU are not counted."


def judge(records: Sequence[Record]) -> Judgement:
    """Make a table of the runs on GPUs, or say that there are none."""
    if not on_gpus(records):
        return Judgement(note=NOTHING)
    table = tables.steps(records)
    return Judgement(tables={"steps": table})


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare times on the same kind of device; the table may be empty."""
    keys = ["stack", "way", "device"]
    empty = pd.DataFrame(columns=[*keys, *TIME])
    both = published.get("steps", empty).merge(
        own.get("steps", empty), on=keys, suffixes=("_published", "_own")
    )
    agree = [
        overlap(_time(row, "_published"), _time(row, "_own"), SLACK)
        for _, row in both.iterrows()
    ]
    return both.assign(matches=pd.Series(agree, index=both.index, dtype=bool))


TIME = ("time", "time_low", "time_high")


def _time(row: pd.Series, whose: str) -> Interval:
    return Interval(*(row[f"{name}{whose}"] for name in TIME))


def _on_gpu(name: str) -> Callable[[Record], float]:
    """Return a reader of a number of a run; NaN for runs that are not on a GPU."""
    return lambda record: record.summary[name] if on_gpus([record]) else np.nan


METRICS = {
    "time": Metric(_on_gpu("time"), "microseconds a step", "smaller"),
    "waits": Metric(_on_gpu("waits"), "waits a step", "smaller"),
    "launches": Metric(_on_gpu("launches"), "launches a step", "smaller"),
}
"""The metrics by which runs are compared."""
