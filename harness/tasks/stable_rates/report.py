"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from harness.figures.axes import log_axis
from harness.figures.plot import Drawing
from harness.figures.style import DARK, LIGHT, WIDTH, Theme
from harness.figures.tables import first_backend
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Floats, Interval, bootstrap, median
from harness.tasks.cells import backend_of, by_config
from harness.tasks.stable_rates.task import Range, Settings, stable_range

ARM = ["method", "batch", "backend"]

BAR = 0.9
"""The held-out accuracy that a good rate reaches: nine of ten digits, for every arm."""

ROUNDING = 1e-6
"""The error of a share in float32. A rate whose accuracy is the bar is good."""


@dataclass(frozen=True)
class Cell:
    """The runs of one method and batch on one backend."""

    settings: Settings
    records: Sequence[Record]

    @property
    def labels(self) -> dict[str, str | int]:
        """The columns that name the cell in every table."""
        settings = self.settings
        names = (settings.label, settings.batch, backend_of(self.records[0]))
        return dict(zip(ARM, names, strict=True))

    @property
    def accuracies(self) -> Floats:
        """The final accuracy of each run at each rate: [seeds, rates]."""
        return np.array([record.series["accuracy"] for record in self.records], float)

    @property
    def median_range(self) -> Range:
        """The stable range of the median accuracies."""
        medians = np.median(self.accuracies, axis=0).tolist()
        return _stable_range(self.settings.rates, medians)


def cells(records: Sequence[Record]) -> list[Cell]:
    """Group records that differ only in their seed, in order of appearance."""
    return [Cell(Settings(**group[0].config), group) for group in by_config(records)]


def sweeps(of: Sequence[Cell]) -> pd.DataFrame:
    """A row per rate: the final ``accuracy``, the median with its interval.

    ``stable`` marks the stable range of the medians.
    """
    frames = []
    for cell in of:
        rates, ends = np.asarray(cell.settings.rates), cell.median_range
        columns = {
            "rate": rates,
            **bootstrap(median, cell.accuracies).named("accuracy"),
            "stable": (ends.lowest <= rates) & (rates <= ends.highest),
        }
        frames.append(pd.DataFrame({**cell.labels, **columns}))
    return pd.concat(frames, ignore_index=True)


def ranges(of: Sequence[Cell]) -> pd.DataFrame:
    """A row per method and batch: medians over the seeds, with intervals.

    ``best`` is the highest accuracy of a sweep. ``width`` is the factor by which the
    rate may change in its stable range, 0 without a good rate; ``reached`` is the
    number of runs with one. ``best_rate``, ``lowest`` and ``highest``
    belong to the median accuracies. ``open`` is whether this range reaches an end of
    the sweep, so that it may be wider.
    """
    return pd.DataFrame([_range(cell) for cell in of])


def range_of(record: Record) -> Range:
    """Return the stable range of a run."""
    series = record.series
    return _stable_range(series["rate"], series["accuracy"])


def _stable_range(rates: Sequence[float], accuracies: Sequence[float]) -> Range:
    return stable_range(rates, accuracies, BAR - ROUNDING)


def _range(cell: Cell) -> dict[str, Any]:
    rates, ends = cell.settings.rates, cell.median_range
    of_runs = [range_of(record) for record in cell.records]
    widths = np.array([each.width for each in of_runs])
    row: dict[str, Any] = {
        **cell.labels,
        "seeds": len(cell.records),
        "steps": cell.settings.steps,
    }
    row |= bootstrap(median, [each.best for each in of_runs]).named("best")
    row |= _middle(widths).named("width")
    row["bar"] = BAR
    row["reached"] = int((widths > 0).sum())
    row |= {name: getattr(ends, name) for name in ("best_rate", "lowest", "highest")}
    row["open"] = ends.lowest == rates[0] or ends.highest == rates[-1]
    return row


def _middle(factors: Floats) -> Interval:
    """Return the median of factors on a logarithmic scale, with its interval.

    So with an even number of runs it is the geometric mean of the two middle ones.
    """
    with np.errstate(divide="ignore"):
        return Interval(*map(np.exp, bootstrap(median, np.log(factors))))


APART = ("method", "batch")
"""The settings that distinguish runs in the tables."""

METRICS = {
    "highest rate": Metric(lambda r: range_of(r).highest, "rate", "larger"),
    "stable range": Metric(lambda r: range_of(r).width, "factor", "larger"),
    "best accuracy": Metric(lambda r: range_of(r).best, "share", "larger"),
}
"""The metrics by which runs are compared."""

PLAIN = "none"
"""The label of training without any clipping."""

CLOSE = 0.05
"""The largest difference from a published accuracy; seeds differ as much."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records."""
    found = cells(records)
    if not found:
        return Judgement()
    widths = ranges(found)
    contents = {"ranges": widths, "sweeps": sweeps(found)}
    return Judgement(tables=contents)


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's best accuracies with the published ones."""
    columns = [*ARM, "best"]
    rows = published["ranges"][columns].merge(
        own["ranges"][columns], on=ARM, suffixes=("_published", "_own")
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


CENTERED: Mapping[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}

CHANCE = 0.1
"""The accuracy of a guess among ten digits; cells up to it have no color."""

STRONG = {"light": 0.75, "dark": 0.72}
"""The accuracy above which the other theme's ink is more readable on a cell."""


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    yield draw_sweeps(finding)
    yield draw_ranges(finding)


def draw_sweeps(finding: Finding) -> Drawing:
    """Final accuracy over rate and batch; a heat map per method."""
    table = first_backend(finding.tables["sweeps"])
    methods = list(dict.fromkeys(table["method"]))
    batches = sorted(set(table["batch"]))

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots(len(methods), sharex=True, squeeze=False)
        panels = list(axes.flat)
        for panel, method in zip(panels, methods, strict=True):
            _heat(panel, theme, table[table["method"] == method])
            panel.set_title(named(method))
        canvas.supylabel("batch (images a step)", fontsize=9)
        panels[-1].set_xlabel("learning rate")
        outlined = _outline(0, 0, 1, theme)
        outlined.set_label(f"rates that reach {100 * BAR:.0f}%")
        canvas.legend(handles=[outlined], loc="outside lower right")

    return Drawing(
        "sweeps",
        _title_of_sweeps(first_backend(finding.tables["ranges"])),
        alt="Accuracy of a deep net at the end of training over learning rate and "
        f"batch, one heat map a method. {finding.answer}",
        caption="Held-out accuracy in per cent, median over seeds; "
        f"{100 * CHANCE:g} is chance. All batches see the same number of epochs.",
        data=table,
        size=(WIDTH, 0.9 + len(methods) * (0.35 + 0.27 * len(batches))),
        paint=paint,
    )


def _title_of_sweeps(ranges: pd.DataFrame) -> str:
    """Quote the stable rates with the largest batch, for two methods."""
    high, low = extremes(ranges)
    text = f"{named(high['method'])} trains at {_ends(high)}"
    if high["method"] != low["method"]:
        text += f", {named(low['method'])} at {_ends(low)}"
    return f"With a batch of {high['batch']:,}, {text}"


def _ends(row: pd.Series) -> str:
    """Return the rates of a range as text."""
    if not row["lowest"]:
        return "no rate"
    if row["lowest"] == row["highest"]:
        return f"a rate of {row['lowest']:g}"
    return f"rates from {row['lowest']:g} to {row['highest']:g}"


def _title_of_ranges(ranges: pd.DataFrame) -> str:
    """Quote the factor by which the rate may change, for two methods."""
    high, low = extremes(ranges)
    text = (
        f"The rate may change by a factor of {factor(high)} ({named(high['method'])})"
    )
    if high["method"] != low["method"]:
        text += f" and {factor(low)} ({named(low['method'])})"
    return f"{text} with a batch of {high['batch']:,}"


def _heat(panel: Axes, theme: Theme, table: pd.DataFrame) -> None:
    """Color the cells of a method, write their values, outline the stable ranges."""
    values = table.pivot_table("accuracy", "batch", "rate")
    stable = table.pivot_table("stable", "batch", "rate", aggfunc="max")
    color = theme.methods["default"]
    # The colormap begins with the same color without opacity, to show the page.
    colors = LinearSegmentedColormap.from_list("accuracy", [f"{color}00", color])
    panel.imshow(values, colors, vmin=CHANCE, vmax=1, origin="lower", aspect="auto")
    panel.set_xticks(range(len(values.columns)), [f"{r:g}" for r in values.columns])
    panel.set_yticks(range(len(values.index)), [f"{b:,}" for b in values.index])
    panel.grid(visible=False)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    for row, batch in enumerate(values.index):
        for column, accuracy in enumerate(values.loc[batch]):
            ink = _ink_on(theme, accuracy)
            panel.text(column, row, f"{100 * accuracy:.0f}", color=ink, **CENTERED)
        inside = [k for k, held in enumerate(stable.loc[batch]) if held]
        if inside:
            panel.add_patch(_outline(inside[0], row, len(inside), theme))


def _ink_on(theme: Theme, accuracy: float) -> str:
    """Return the color of a cell's number: the other theme's ink on a strong color."""
    other = DARK if theme is LIGHT else LIGHT
    return (other if accuracy > STRONG[theme.name] else theme).ink


def _outline(column: float, row: float, length: int, theme: Theme) -> Rectangle:
    """Return a frame around adjacent cells of a row."""
    corner = (column - 0.46, row - 0.42)
    return Rectangle(corner, length - 0.08, 0.84, fill=False, ec=theme.ink, lw=1.4)


def draw_ranges(finding: Finding) -> Drawing:
    """The factor by which the rate may change; a line per method and batch."""
    table = first_backend(finding.tables["ranges"])
    methods = list(dict.fromkeys(table["method"]))
    batches = sorted(set(table["batch"]))

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        step = 0.8 / len(batches)
        for row in table.to_dict("records"):
            above = methods.index(row["method"]) - 0.4
            place = above + step * (batches.index(row["batch"]) + 0.5)
            _draw_range(axes, theme, row, place)
        decades = 1 + int(np.log10(table["width_high"].max()))
        log_axis(axes, "x", [10**k for k in range(decades)])
        axes.set_xlabel("stable range: highest / lowest rate that trains")
        axes.set_yticks(range(len(methods)), map(named, methods))
        axes.set_ylim(len(methods) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0.7, 50 * table["width_high"].max())

    return Drawing(
        "ranges",
        _title_of_ranges(table),
        alt="By what factor the learning rate may change while a deep net trains, for "
        f"each method and batch. {finding.answer}",
        caption="Medians over seeds with 95% intervals. An arrow marks a range that "
        "reaches an end of the sweep and may be wider.",
        data=table,
        size=(WIDTH, 1.0 + 0.25 * len(methods) * len(batches)),
        paint=paint,
    )


def _draw_range(
    axes: Axes, theme: Theme, row: Mapping[Hashable, Any], place: float
) -> None:
    """Draw one range on its line: the interval, the median and its batch."""
    color = theme.methods["none" if row["method"] == PLAIN else "default"]
    axes.hlines(place, row["width_low"], row["width_high"], color=color)
    symbol = ">" if row["open"] else "o"
    axes.plot(row["width"], place, marker=symbol, ms=6, color=color)
    beside: Mapping[str, Any] = {"xytext": (7, 0), "textcoords": "offset points"}
    text = f"batch {row['batch']:,}: {factor(row)}"
    axes.annotate(text, (row["width_high"], place), va="center", fontsize=8, **beside)
