"""Tables of float16's final loss against float32's, and of scale recovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.judgement.finding import Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Interval, overlap
from harness.tasks.checks import Check, Holds, all_hold, both
from harness.tasks.deep_digits import tables
from harness.tasks.deep_digits.settings import Settings

__all__ = ["APART", "METRICS", "checks", "floor_of", "judge", "match", "scaled_of"]

APART = ("method.label",)
"""The settings that distinguish runs in the tables."""

METRICS = {
    "loss": Metric(
        lambda r: r.series["loss"][-1] if r.status == "ok" else np.inf,
        "nats",
        "smaller",
    ),
}
"""The metrics by which runs are compared: the held-out loss at the end."""

SLACK = 0.05
"""The largest distance of intervals of a loss, because few seeds make them narrow."""

USUAL_WINDOW = 2000
"""The default steps between two increases of a scale, of dynamic and Backoff."""

PINNED = (9_000, 13_000)
"""Updates for which one infinity pins the original's LogMax: about 11,000."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, and check them."""
    cells = tables.cells(records)
    frames = {
        "losses": tables.losses(cells),
        "scales": tables.scales(cells),
        "simulation": tables.simulation(cells),
        "underflow": tables.underflow(cells),
        "histogram": tables.histograms(cells),
        "curves": tables.curves(cells),
    }
    settings = {cell.settings.label: cell.settings for cell in cells}
    return Judgement(tables=frames, checks=checks(frames, settings))


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's losses with published ones of the same scale."""
    keys = ["method", "backend"]
    both = published["losses"].merge(
        own["losses"], on=keys, suffixes=("_published", "_own")
    )
    agree = [
        overlap(_loss(row, "_published"), _loss(row, "_own"), SLACK)
        for _, row in both.iterrows()
    ]
    columns = [f"loss{part}_{whose}" for whose in ("published", "own") for part in ENDS]
    return both[[*keys, *columns]].assign(matches=agree)


ENDS = ("", "_low", "_high")


def _loss(row: pd.Series, suffix: str = "") -> Interval:
    return Interval(*(np.asarray(row[f"loss{part}{suffix}"]) for part in ENDS))


# -- checks ----------------------------------------------------------------------------


def checks(
    frames: Mapping[str, pd.DataFrame], settings: Mapping[str, Settings]
) -> list[Check]:
    """Return each check with whether it holds on every backend."""
    windows, scales = _windows(settings), frames["scales"]
    return [
        (
            "without a scale most gradients are 0 in float16, with one hardly any",
            _flushes(frames, settings, scaled_of(settings)),
        ),
        (
            "after one overflow dynamic and Backoff are back in a window of steps",
            all_hold(
                [
                    row["recovery"] <= windows[row["method"]]
                    for _, row in scales[scales["method"].isin(windows)].iterrows()
                ]
            ),
        ),
        (
            "in a simulation of the scaler alone, one infinity pins the original's "
            "LogMax at its minimum for about 11000 updates",
            all_hold([PINNED[0] < n < PINNED[1] for n in _pinned(frames, settings)]),
        ),
    ]


def floor_of(settings: Mapping[str, Settings]) -> str:
    """Return the first float16 method without a scale, or an empty text."""
    half = (m for m, each in settings.items() if each.dtype == "float16")
    return next((m for m in half if settings[m].scale == "none"), "")


def scaled_of(settings: Mapping[str, Settings]) -> list[str]:
    """Return the methods that should match float32: scaled float16 without quirks."""
    return [
        label
        for label, each in settings.items()
        if each.dtype == "float16" and each.scale != "none" and not each.strict
    ]


def _windows(settings: Mapping[str, Settings]) -> dict[str, int]:
    """Return the steps between two increases of the dynamic and Backoff scales."""
    names = {"dynamic": "increment_period", "Backoff": "step_window"}
    return {
        label: int(each.arguments.get(names[each.scale], USUAL_WINDOW))
        for label, each in settings.items()
        if each.scale in names and not each.strict
    }


def _flushes(
    frames: Mapping[str, pd.DataFrame],
    settings: Mapping[str, Settings],
    scaled: Sequence[str],
) -> Holds:
    """Whether over 50% are 0 by law and in runs, but under 5% with a scale."""
    underflow, scales = frames["underflow"], frames["scales"]
    by_law = underflow[underflow["scale_log2"] == 0]["flushed_low"]
    columns = ["zero_weights", "zero_activations"]
    without = scales[scales["method"] == floor_of(settings)][columns]
    others = scales[scales["method"].isin(scaled)][columns]
    return both(
        all_hold(by_law > 0.5), all_hold(without > 0.5), all_hold(others < 0.05)
    )


def _pinned(
    frames: Mapping[str, pd.DataFrame], settings: Mapping[str, Settings]
) -> list[float]:
    """Return the updates for which one infinity pins each LogMax with the quirk."""
    pinned = _column(frames["simulation"], "pinned")
    return [
        pinned[label]
        for label, each in settings.items()
        if each.strict and each.scale == "LogMax" and label in pinned
    ]


def _column(table: pd.DataFrame, name: str) -> dict[str, float]:
    """Return method -> value of a column in the method's first row."""
    once = table.drop_duplicates("method")
    values = once[name].astype(float)
    return dict(zip(once["method"].astype(str), values, strict=True))


# -- sentences -------------------------------------------------------------------------
