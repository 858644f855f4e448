"""Tables of which precisions end as well as float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.figures.tables import first_backend
from harness.judgement.finding import Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Interval, overlap
from harness.tasks.checks import Check, all_hold
from harness.tasks.mixed_precision_text import tables

__all__ = [
    "APART",
    "MARGIN",
    "METRICS",
    "checks",
    "is_equal",
    "judge",
    "match",
    "plain_name",
    "shown",
]

APART = ("method.label", "rate")
"""The settings that distinguish runs in the tables."""

METRICS = {
    "bits": Metric(
        lambda r: r.series["bits"][-1] if r.status == "ok" else np.inf,
        "bits a byte",
        "smaller",
    ),
    "steps to target": Metric(
        lambda r: float(np.nan_to_num(r.summary.get("to_target", np.inf), nan=np.inf)),
        "steps",
        "smaller",
    ),
}
"""The metrics by which runs are compared: final held-out bits, and steps to target."""

MARGIN = 0.01
"""An arm equals float32 if its interval is within this share of float32's bits."""

SLACK = 0.02
"""The largest distance of intervals of bits, because few seeds make them narrow."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, and check them."""
    cells = tables.cells(records)
    frames = {
        "ends": tables.ends(cells),
        "scales": tables.scales(cells),
        "curves": tables.curves(cells),
    }
    return Judgement(tables=frames, checks=checks(frames))


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's bits with published ones of the same scale."""
    columns = [*tables.ARM, *BITS]
    both = published["ends"][columns].merge(
        own["ends"][columns], on=tables.ARM, suffixes=("_published", "_own")
    )
    agree = [
        overlap(_bits(row, "_published"), _bits(row, "_own"), SLACK)
        for _, row in both.iterrows()
    ]
    return both.assign(matches=pd.Series(agree, index=both.index, dtype=bool))


BITS = ("bits", "bits_low", "bits_high")


def _bits(row: pd.Series, whose: str) -> Interval:
    return Interval(*(np.asarray(row[f"{name}{whose}"]) for name in BITS))


def shown(ends: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the first backend, each method at its best rate."""
    return first_backend(ends[ends["best"]])


def checks(frames: Mapping[str, pd.DataFrame]) -> list[Check]:
    """Return each check with whether it holds on every backend."""
    scales = frames["scales"].dropna(subset=["skipped"])
    return [
        (
            "every arm skips the steps with an infinite gradient",
            all_hold(scales["skipped"] >= scales["injected"]),
        )
    ]


# -- sentences -------------------------------------------------------------------------


def is_equal(rows: pd.DataFrame) -> pd.Series:
    """Whether the interval of each ratio to float32 is within the margin."""
    return (rows["ratio_low"] >= 1 - MARGIN) & (rows["ratio_high"] <= 1 + MARGIN)


def plain_name(method: str) -> str:
    """Return the label of an arm without commas, for use in sentences."""
    return method.replace(", ", " ")
