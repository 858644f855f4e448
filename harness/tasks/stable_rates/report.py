"""Tables and figures of sweeps over the learning rate, from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

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

ARM = ["method", "batch", "backend"]

BAR = 0.9
"""The held-out accuracy that a good rate reaches: nine of ten digits, for every arm."""

ROUNDING = 1e-6
"""The error of a share in float32. A rate whose accuracy is the bar is good."""

PLAIN = "none"
"""The label of training without any clipping."""


class Range(NamedTuple):
    """The stable range of a sweep.

    Attributes:
        best: the highest accuracy, at ``best_rate``; the lowest of equally good rates.
        lowest, highest: the ends of the range around it; 0 if no rate is good enough.
    """

    best: float
    best_rate: float
    lowest: float
    highest: float

    @property
    def width(self) -> float:
        """The factor by which the rate may change; 0 if no rate is good enough."""
        return self.highest / self.lowest if self.lowest else 0.0


def stable_range(
    rates: Sequence[float], accuracies: Sequence[float], least: float
) -> Range:
    """Return the rates around the best one whose accuracy is at least ``least``.

    Args:
        rates: learning rates in increasing order.
        accuracies: shares, one per rate.
        least: a share. The range ends at the first rate below it, even if rates
            beyond are better.
    """
    values = np.asarray(accuracies, float)
    best = int(values.argmax())
    low = high = best
    if values[best] < least:
        return Range(float(values[best]), rates[best], 0.0, 0.0)
    while low > 0 and values[low - 1] >= least:
        low -= 1
    while high < len(values) - 1 and values[high + 1] >= least:
        high += 1
    return Range(float(values[best]), rates[best], rates[low], rates[high])


def range_of(record: Record) -> Range:
    """Return the stable range of a run."""
    return range_in(record.series["rate"], record.series["accuracy"])


def range_in(rates: Sequence[float], accuracies: Sequence[float]) -> Range:
    """Return the rates that are as good as the bar."""
    return stable_range(rates, accuracies, BAR - ROUNDING)


METRICS = {
    "highest rate": Metric(lambda r: range_of(r).highest, "rate", "larger"),
    "stable range": Metric(lambda r: range_of(r).width, "factor", "larger"),
    "best accuracy": Metric(lambda r: range_of(r).best, "share", "larger"),
}
"""The metrics by which runs are compared."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records.

    ``sweeps``: a row per rate with the final ``accuracy``, the median with its
    interval; ``stable`` marks the stable range of the medians. ``ranges``: a row per
    method and batch, see :func:`range_row`.
    """
    sweeps, ranges = [], []
    for group in by_config(records):
        of = Settings(**group[0].config)
        names = (of.label, of.batch, backend_of(group[0]))
        labels: dict[str, Any] = dict(zip(ARM, names, strict=True))
        accuracies = np.array([record.series["accuracy"] for record in group], float)
        ends = range_in(of.rates, np.median(accuracies, axis=0).tolist())
        rates = np.asarray(of.rates)
        stable = (ends.lowest <= rates) & (rates <= ends.highest)
        row = {"rate": rates, **interval("accuracy", accuracies), "stable": stable}
        sweeps.append(pd.DataFrame({**labels, **row}))
        ranges.append({**labels, **range_row(of, group, ends)})
    if not sweeps:
        return Judgement()
    tables = {"ranges": pd.DataFrame(ranges), "sweeps": pd.concat(sweeps)}
    return Judgement({k: table.reset_index(drop=True) for k, table in tables.items()})


def range_row(of: Settings, group: Sequence[Record], ends: Range) -> dict[str, Any]:
    """Return medians over the seeds of one method and batch, with intervals.

    ``best`` is the highest accuracy of a sweep. ``width`` is the factor by which the
    rate may change in its stable range, 0 without a good rate; its median is on a
    logarithmic scale. ``reached`` counts the runs with a good rate. ``best_rate``,
    ``lowest`` and ``highest`` belong to the median accuracies. ``open`` is whether this
    range reaches an end of the sweep, so that it may be wider.
    """
    ranges = [range_of(record) for record in group]
    widths = np.array([each.width for each in ranges])
    with np.errstate(divide="ignore"):
        width = bootstrap(median, np.log(widths)).named("width")
    return {
        "seeds": len(group),
        "steps": of.steps,
        **interval("best", [each.best for each in ranges]),
        **{name: np.exp(value) for name, value in width.items()},
        "bar": BAR,
        "reached": int((widths > 0).sum()),
        "best_rate": ends.best_rate,
        "lowest": ends.lowest,
        "highest": ends.highest,
        "open": ends.lowest == of.rates[0] or ends.highest == of.rates[-1],
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
