"""Tables of examples per second with a wrapper, relative to a bare step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.judgement.finding import Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Interval, overlap
from harness.tasks.training_throughput import tables
from harness.tasks.training_throughput.training import CONTROL

__all__ = ["APART", "METRICS", "judge", "match"]

APART = ("workload", "precision")
"""The settings that distinguish runs in the tables."""

SLACK = 0.1
"""The largest distance of intervals of ratios, because machines differ."""


def _over_bare(variant: str) -> Metric:
    """Return the metric of a variant's rate relative to the bare step's of the run."""

    def read(record: Record) -> float:
        if not tables.is_timed(record):
            return 0.0 if record.status == "diverged" else np.nan
        return record.summary[f"rate/{variant}"] / record.summary["rate/bare"]

    return Metric(read, "ratio", "larger")


METRICS = {"ratio": _over_bare("wrapped"), "control": _over_bare(CONTROL)}
"""The metrics of a run, which are both comparisons within it."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make a table of the records."""
    table = tables.rates(records)
    return Judgement(tables={"rates": table})


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare ratios, which agree between machines; absolute rates do not."""
    keys = ["workload", "precision", "backend"]
    columns = [*keys, *RATIO]
    both = published["rates"][columns].merge(
        own["rates"][columns], on=keys, suffixes=("_published", "_own")
    )
    both = both.dropna()
    agree = [
        overlap(_interval(row, "_published"), _interval(row, "_own"), SLACK)
        for _, row in both.iterrows()
    ]
    return both.assign(matches=pd.Series(agree, index=both.index, dtype=bool))


RATIO = ("ratio", "ratio_low", "ratio_high")


def _interval(row: pd.Series, whose: str = "") -> Interval:
    return Interval(*(np.asarray(row[f"{name}{whose}"]) for name in RATIO))
