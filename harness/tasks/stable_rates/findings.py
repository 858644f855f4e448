"""Tables of the range of stable rates, and of the best accuracy."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.judgement.finding import Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.stable_rates import tables

__all__ = ["APART", "METRICS", "PLAIN", "extremes", "factor", "judge", "match", "named"]

APART = ("method", "batch")
"""The settings that distinguish runs in the tables."""

METRICS = {
    "highest rate": Metric(lambda r: tables.range_of(r).highest, "rate", "larger"),
    "stable range": Metric(lambda r: tables.range_of(r).width, "factor", "larger"),
    "best accuracy": Metric(lambda r: tables.range_of(r).best, "share", "larger"),
}
"""The metrics by which runs are compared."""

PLAIN = "none"
"""The label of training without any clipping."""

CLOSE = 0.05
"""The largest difference from a published accuracy; seeds differ as much."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records."""
    cells = tables.cells(records)
    if not cells:
        return Judgement()
    ranges = tables.ranges(cells)
    contents = {"ranges": ranges, "sweeps": tables.sweeps(cells)}
    return Judgement(tables=contents)


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's best accuracies with the published ones."""
    columns = [*tables.ARM, "best"]
    rows = published["ranges"][columns].merge(
        own["ranges"][columns], on=tables.ARM, suffixes=("_published", "_own")
    )
    gap = np.abs(rows["best_own"] - rows["best_published"])
    return rows.assign(matches=gap <= CLOSE)


def factor(row: Mapping[Hashable, Any] | pd.Series) -> str:
    """Return the width of a range as text, and whether it may be wider."""
    width = row["width"]
    if not width:
        return "no good rate"
    # No decimals from 10 on, because a geometric mean of powers of ten is inexact.
    text = f"{width:,.0f}" if width >= 9.5 else f"{width:.2g}"
    return f"{text} or more" if row["open"] else text


def named(method: str) -> str:
    """Return the name of a method in sentences and figures."""
    return "plain SGD" if method == PLAIN else method


def extremes(ranges: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the rows of the widest and the narrowest range with the largest batch.

    The second one is training without any clipping instead, if it exists.
    """
    rows = ranges[ranges["batch"] == ranges["batch"].max()]
    rows = rows.sort_values("width", kind="stable")
    plain = rows[rows["method"] == PLAIN]
    return rows.iloc[-1], (plain if len(plain) else rows).iloc[0]
