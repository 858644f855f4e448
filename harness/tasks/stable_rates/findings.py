"""The answer, computed: over which rates a net trains, and how well."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.finding import NO_ANSWER, Judgement, joined
from harness.metrics import Metric
from harness.records.record import Record
from harness.tables import first_backend
from harness.tasks.stable_rates import tables

__all__ = ["APART", "METRICS", "factor", "judge", "match"]

APART = ("method", "batch")
"""The settings by which the tables tell runs apart."""

METRICS = {
    "highest rate": Metric(lambda r: r.summary["highest"], "rate", "larger"),
    "stable range": Metric(tables.width, "factor", "larger"),
    "best accuracy": Metric(lambda r: r.summary["best"], "share", "larger"),
}
"""The numbers by which runs are compared."""

CLOSE = 0.05
"""How far a user's accuracy may be from the published one; seeds differ as much."""


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
    """Return how wide a range is, and whether it may be wider."""
    width = row["width"]
    # From 10 on no decimals: a geometric mean of powers of ten is not quite one.
    text = f"{width:,.0f}" if width >= 9.5 else f"{width:.2g}"
    return f"{text} or more" if row["open"] else text


def _answer(ranges: pd.DataFrame) -> Iterator[str]:
    """Quote widths and accuracies with the largest batch, the best method first."""
    rows = first_backend(ranges)
    batch = rows["batch"].max()
    rows = rows[rows["batch"] == batch]
    wide = rows.sort_values("width", ascending=False, kind="stable")
    widths = [f"{factor(row)} ({row['method']})" for _, row in wide.iterrows()]
    yield (
        f"With a batch of {batch:,}, the learning rate may change by a factor of "
        f"{joined(widths)} without a loss of accuracy."
    )
    good = rows.sort_values("best", ascending=False, kind="stable")
    best = [f"{row['best']:.0%} ({row['method']})" for _, row in good.iterrows()]
    yield f"At the best rate of each method the accuracy is {joined(best)}."


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
        "Medians over seeds, intervals bootstrapped (95 %).",
    ]
