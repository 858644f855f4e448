"""Tables and figures of sweeps over the learning rate, from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from harness.figures.marks import dots, first_backend, heat, log_axis, unique
from harness.figures.plot import Drawing
from harness.figures.style import DARK, LIGHT, WIDTH, Theme
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.cells import backend_of, by_config, interval
from harness.tasks.stable_rates.task import Range, Settings, stable_range

APART = ("method", "batch")
"""The settings that distinguish runs in the tables."""

ARM = ["method", "batch", "backend"]

BAR = 0.9
"""The held-out accuracy that a good rate reaches: nine of ten digits, for every arm."""

ROUNDING = 1e-6
"""The error of a share in float32. A rate whose accuracy is the bar is good."""

PLAIN = "none"
"""The label of training without any clipping."""

CHANCE = 0.1
"""The accuracy of a guess among ten digits; cells up to it have no color."""

STRONG = {"light": 0.75, "dark": 0.72}
"""The accuracy above which the other theme's ink is more readable on a cell."""


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
    """Yield the figures in reading order."""
    ranges = first_backend(finding.tables["ranges"])
    largest = ranges[ranges["batch"] == ranges["batch"].max()]
    yield draw_sweeps(first_backend(finding.tables["sweeps"]), largest)
    yield draw_ranges(ranges, largest)


def draw_sweeps(table: pd.DataFrame, largest: pd.DataFrame) -> Drawing:
    """Final accuracy over rate and batch; a heat map per method."""
    methods, batches = unique(table["method"]), sorted(set(table["batch"]))

    def paint(canvas: Canvas, theme: Theme) -> None:
        panels = canvas.subplots(len(methods), sharex=True, squeeze=False)[:, 0]
        for panel, method in zip(panels, methods, strict=True):
            _heat(panel, theme, table[table["method"] == method])
            panel.set_title(_named(method))
        canvas.supylabel("batch (images a step)", fontsize=9)
        panels[-1].set_xlabel("learning rate")

    best = largest.sort_values("best").iloc[-1]
    return Drawing(
        "sweeps",
        f"With a batch of {best['batch']:,}, {_named(best['method'])} reaches "
        f"{best['best']:.0%} at its best rate",
        alt="Accuracy of a deep net at the end of training over learning rate and "
        "batch, one heat map a method.",
        caption="Held-out accuracy in per cent, median over seeds; "
        f"{100 * CHANCE:g} is chance. In bold: rates that reach {BAR:.0%}. All batches "
        "see the same number of epochs.",
        data=table,
        size=(WIDTH, 0.9 + len(methods) * (0.35 + 0.27 * len(batches))),
        paint=paint,
    )


def _heat(panel: Axes, theme: Theme, table: pd.DataFrame) -> None:
    """Color the cells of a method, and write their values."""
    values = table.pivot_table("accuracy", "batch", "rate")
    stable = table.pivot_table("stable", "batch", "rate", aggfunc="max")
    heat(panel, values, CHANCE, theme.methods["default"])
    other = DARK if theme is LIGHT else LIGHT
    for (row, column), accuracy in np.ndenumerate(values.to_numpy(float)):
        look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9}
        look["weight"] = "bold" if stable.iat[row, column] else "normal"
        ink = (other if accuracy > STRONG[theme.name] else theme).ink
        panel.text(column, row, f"{100 * accuracy:.0f}", color=ink, **look)


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
