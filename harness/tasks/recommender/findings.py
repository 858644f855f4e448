"""Tables of the cost of limits, their guarantees and their effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.judgement.finding import Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.embeddings.cells import (
    agreeing,
    backends,
    cells,
    curves,
    differences,
    last,
)
from harness.tasks.recommender import tables
from harness.tasks.recommender.settings import Settings
from harness.timing import AGAIN

__all__ = ["APART", "IDENTICAL", "METRICS", "NAMES", "SERIES", "judge", "match"]

APART = ("optimizer.name", "limit")
"""The settings that distinguish runs in the tables."""

SERIES = (
    *("loss", "ndcg", "recall", "norm/frequent", "norm/rare"),
    *("highest/named", "highest/stored", "highest/served", "above"),
)

NAMES = {"none": "without a limit", "clip": "clipped", "lookup": "normalized"}


IDENTICAL = (f"clip{AGAIN}", "clip")
"""Two names of the same work, which is timed twice."""


def _time_ratio(what: str, limit: str, against: str) -> Metric:
    """Return the metric of the ratio of two times of one run; NaN without times."""

    def read(record: Record) -> float:
        times = [
            record.summary.get(f"seconds/{what}/{name}", np.nan)
            for name in (limit, against)
        ]
        return times[0] / times[1]

    return Metric(read, f"time of {what}s, {limit} over {against}", "smaller")


METRICS = {
    "ndcg": last("ndcg", "NDCG@10"),
    "recall": last("recall", "recall@10"),
    "loss": last("loss", "nats"),
    "rows above the limit": last("above", "share of the rows that are served"),
    "lookup time": _time_ratio("lookup", "lookup", "clip"),
    "step time": _time_ratio("step", "clip", "lookup"),
    "lookup time again": _time_ratio("lookup", *IDENTICAL),
    "step time again": _time_ratio("step", *IDENTICAL),
}
"""The metrics by which runs are compared. A run with clipping measures the times of all
limits, so a ratio is within one run."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records."""
    of = cells(records, Settings)
    lines = curves(of, SERIES)
    frames = {
        "cost": tables.cost(of),
        "promise": tables.promise(of),
        "effect": differences(of, ["ndcg", "recall", "loss"], "clip"),
        "ends": lines[lines["step"] == lines["step"].max()],
        "baselines": tables.baselines(of),
        "curves": lines,
        "backends": backends(of, "loss"),
    }
    return Judgement(tables=frames)


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare the effects of limits on ranks and loss; times depend on the machine."""
    return agreeing(published["effect"], own["effect"])


# -- sentences -------------------------------------------------------------------------
