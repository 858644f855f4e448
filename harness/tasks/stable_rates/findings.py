"""Compute the answer: the range of stable rates, and the best accuracy."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.figures.tables import first_backend
from harness.judgement.finding import NO_ANSWER, Judgement
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
    """Make tables of the records and state the answer."""
    cells = tables.cells(records)
    if not cells:
        return Judgement(f"{NO_ANSWER}.", {}, [])
    ranges = tables.ranges(cells)
    contents = {"ranges": ranges, "sweeps": tables.sweeps(cells)}
    return Judgement(" ".join(_answer(ranges)), contents, _small_print(cells))


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


def _answer(ranges: pd.DataFrame) -> Iterator[str]:
    """Quote widths and accuracies with the largest batch."""
    rows = first_backend(ranges)
    high, low = extremes(rows)
    pair = [high["method"], low["method"]]
    batch = high["batch"]
    text = (
        f"With a batch of {batch:,}, the learning rate may change by a factor of "
        f"{factor(high)} with {named(pair[0])}"
    )
    if pair[0] == pair[1]:
        yield f"{text}, whose best accuracy is {high['best']:.0%}."
        return
    but = "but" if high["best"] < low["best"] else "and"
    yield (
        f"{text} and of {factor(low)} with {named(pair[1])}, {but} the best accuracy "
        f"is {high['best']:.0%} against {low['best']:.0%}."
    )
    others = rows[(rows["batch"] == batch) & ~rows["method"].isin(pair)]
    parts = [
        f"{factor(row)} and {row['best']:.0%} with {named(row['method'])}"
        for _, row in others.iterrows()
    ]
    if parts:
        yield f"The factor and the accuracy are {'; '.join(parts)}."


def _small_print(cells: Sequence[tables.Cell]) -> list[str]:
    settings = cells[0].settings
    return [
        f"A rate is in the stable range if the net ends within {settings.margin:.0%} "
        "of the images below the best accuracy of the same sweep, and so do the rates "
        "between it and the best one. A range that reaches an end of the sweep may be "
        "wider than the factor says.",
        f"All batches see the images {settings.epochs} times, so that larger batches "
        "take fewer steps.",
        "In mode clip, LARC limits each step to the share eta of a weight's norm, so "
        "that rates above some point all train alike: then eta decides, not the rate. "
        "In mode scale the step is rate times eta times the norm, so its rates are in "
        "other units, and their range is the range of eta that works in both modes.",
        "The best accuracy is the highest of a sweep on the held-out images, the same "
        "for every method, so it is a little too high for all of them.",
        "Medians over seeds, intervals bootstrapped (95%).",
    ]
