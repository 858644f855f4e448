"""Tables and figures of sweeps over the learning rate, from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from harness.figures.marks import (
    curves,
    dots,
    first_backend,
    log_axis,
    looks,
    percent,
    unique,
)
from harness.figures.plot import Drawing
from harness.figures.style import THIN
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.cells import backend_of, by_config, interval
from harness.tasks.stable_rates.task import Settings

BAR = 0.9
"""The held-out accuracy that a good rate reaches: nine of ten digits, for every arm."""

ROUNDING = 1e-6
"""The error of a share in float32. A rate whose accuracy is the bar is good."""

PLAIN = "none"
"""The label of training without any clipping."""


def stable_range(
    rates: Sequence[float], accuracies: Sequence[float]
) -> tuple[float, float]:
    """Return the lowest and the highest stable rate; zeros without a good rate.

    The stable range has the rates around the best one that reach the bar. It ends at
    the first rate below the bar, even if rates beyond are better.
    """
    good = np.asarray(accuracies) >= BAR - ROUNDING
    low = high = int(np.argmax(accuracies))
    if not good[low]:
        return 0.0, 0.0
    while low > 0 and good[low - 1]:
        low -= 1
    while high < len(rates) - 1 and good[high + 1]:
        high += 1
    return rates[low], rates[high]


def range_of(record: Record) -> tuple[float, float]:
    """Return the stable range of a run."""
    return stable_range(record.series["rate"], record.series["accuracy"])


def width_of(record: Record) -> float:
    """Return the factor by which the rate may change; 0 without a good rate."""
    lowest, highest = range_of(record)
    return highest / lowest if lowest else 0.0


def best_of(record: Record) -> float:
    """Return the highest accuracy of a run."""
    return float(max(record.series["accuracy"]))


METRICS = {
    "highest rate": Metric(lambda record: range_of(record)[1], "rate", "larger"),
    "stable range": Metric(width_of, "factor", "larger"),
    "best accuracy": Metric(best_of, "share", "larger"),
}
"""The metrics by which runs are compared."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records.

    ``sweeps``: a row per rate with the final ``accuracy``, the median with its
    interval. ``ranges``: a row per method and batch, see :func:`range_row`.
    """
    sweeps, ranges = [], []
    for group in by_config(records):
        of = Settings(**group[0].config)
        labels = {"method": of.label, "batch": of.batch}
        labels["backend"] = backend_of(group[0])
        accuracies = np.array([record.series["accuracy"] for record in group], float)
        row = {"rate": of.rates, **interval("accuracy", accuracies)}
        sweeps.append(pd.DataFrame({**labels, **row}))
        ranges.append({**labels, **range_row(group)})
    table = pd.concat(sweeps, ignore_index=True)
    return Judgement({"ranges": pd.DataFrame(ranges), "sweeps": table})


def range_row(group: Sequence[Record]) -> dict[str, Any]:
    """Return medians over the seeds of one method and batch, with intervals.

    ``best`` is the highest accuracy of a sweep. ``width`` is the factor by which the
    rate may change in its stable range, 0 without a good rate; its median is on a
    logarithmic scale. ``reached`` counts the runs with a good rate.
    """
    widths = np.array([width_of(record) for record in group])
    with np.errstate(divide="ignore"):
        width = bootstrap(median, np.log(widths)).named("width")
    return {
        "seeds": len(group),
        **interval("best", [best_of(record) for record in group]),
        **{name: np.exp(value) for name, value in width.items()},
        "bar": BAR,
        "reached": int((widths > 0).sum()),
    }


def drawings(finding: Finding) -> Iterator[Drawing]:
    ranges = first_backend(finding.tables["ranges"])
    largest = ranges[ranges["batch"] == ranges["batch"].max()]
    yield draw_sweeps(first_backend(finding.tables["sweeps"]), largest)
    yield draw_ranges(ranges, largest)


def draw_sweeps(table: pd.DataFrame, largest: pd.DataFrame) -> Drawing:
    """Final accuracy over the rate with the largest batch; a line per method."""
    best = largest.sort_values("best").iloc[-1]
    rows = table[table["batch"] == best["batch"]]
    rows = rows.assign(method=rows["method"].map(_named))

    def axis(panel: Axes) -> None:
        log_axis(panel, "x", [0.001, 0.01, 0.1, 1, 10])
        panel.axhline(BAR, color="gray", lw=THIN)
        panel.yaxis.set_major_formatter(percent())

    return curves(
        "sweeps",
        f"With a batch of {best['batch']:,}, {_named(best['method'])} reaches "
        f"{best['best']:.0%} at its best rate",
        rows,
        "rate",
        "accuracy",
        ("learning rate", "held-out accuracy"),
        looks=lambda theme: looks(unique(rows["method"]), theme),
        alt="Accuracy of a deep net at the end of training over the learning rate with "
        "the largest batch, a line a method.",
        caption="Held-out accuracy, median over seeds with its 95% interval. The thin "
        f"line is {BAR:.0%}, which a good rate reaches. All batches see the same "
        "number of epochs.",
        axis=axis,
    )


def draw_ranges(table: pd.DataFrame, largest: pd.DataFrame) -> Drawing:
    """The factor by which the rate may change; a line per method and batch."""
    batches = [f"batch {batch:,}" for batch in table["batch"]]
    cases = table["method"].map(_named) + ", " + batches
    highest = table["width_high"].max()
    wide = largest.sort_values("width", kind="stable").iloc[-1]

    def axis(panel: Axes) -> None:
        # A range without a good rate has the width 0, left of the axis.
        log_axis(panel, "x", [10**k for k in range(1 + int(np.log10(highest)))])
        panel.set_xlim(0.7, 2 * highest)

    return dots(
        "ranges",
        f"The rate may change by a factor of {wide['width']:,.0f} "
        f"({_named(wide['method'])}) with a batch of {wide['batch']:,}",
        table.assign(
            case=cases, hue=np.where(table["method"] == PLAIN, "none", "default")
        ),
        "width",
        "stable range:\nhighest / lowest rate that trains",
        hues={},
        alt="By what factor the learning rate may change while a deep net trains, for "
        "each method and batch.",
        caption="Medians over seeds with 95% intervals. A range that reaches an end of "
        "the sweep may be wider.",
        data=table,
        axis=axis,
    )


def _named(method: str) -> str:
    return "plain SGD" if method == PLAIN else method
