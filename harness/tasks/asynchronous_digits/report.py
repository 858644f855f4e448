"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure as Canvas
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from harness.figures.axes import log_axis, percent
from harness.figures.plot import Drawing
from harness.figures.style import DARK, LIGHT, WIDTH, Theme
from harness.figures.tables import grouped
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Floats, bootstrap, median
from harness.tasks.asynchronous_digits.task import Settings
from harness.tasks.cells import by_config
from harness.tasks.checks import Check, all_hold

CELL = ["workers", "period"]

ARM = ["method", *CELL, "learning_rate"]

NUMBERS = ("accuracy", "mean_accuracy", "to_target", "staleness", "megabytes")

POINTS = 101
"""The number of points of a curve over simulated time."""


@dataclass(frozen=True)
class Cell:
    """The runs of one method, number of workers and period."""

    settings: Settings
    records: Sequence[Record]

    @property
    def labels(self) -> dict[str, str | int | float]:
        """The columns that name the cell in every table."""
        return {name: getattr(self.settings, name) for name in ARM}

    def number(self, name: str) -> Floats:
        """Return a value of each run's summary, [seeds]; the worst if it diverged."""
        worst = np.inf if name == "to_target" else 0.0
        found = [record.summary.get(name, worst) for record in self.records]
        return np.array(found, float)


def cells(records: Sequence[Record]) -> list[Cell]:
    """Group records that differ only in their seed, in order of appearance."""
    return [Cell(Settings(**group[0].config), group) for group in by_config(records)]


def ends(of: Sequence[Cell]) -> pd.DataFrame:
    """The results of the runs: medians over the seeds, two of them with intervals.

    The final ``accuracy`` and the ``mean_accuracy`` over simulated time are shares of
    held-out images. ``to_target`` is the time to 90% accuracy in mean local steps,
    infinite if it was not reached. ``staleness`` counts pushes of others;
    ``megabytes`` are the sent ones. ``best`` marks the learning rate with the highest
    accuracy, if a method had several.
    """
    rows = []
    for cell in of:
        row = {**cell.labels, "seeds": len(cell.records)}
        for name in NUMBERS:
            row[name] = float(np.median(cell.number(name)))
        for name in NUMBERS[:2]:
            row |= bootstrap(median, cell.number(name)).named(name)
        rows.append(row)
    table = pd.DataFrame(rows)
    order = table.sort_values("accuracy", ascending=False, kind="stable")
    table["best"] = ~order.duplicated(["method", *CELL]).reindex(table.index)
    return table


def curves(of: Sequence[Cell]) -> pd.DataFrame:
    """The center's accuracy over simulated time, median and interval over seeds.

    A measurement is valid until the next one; before the first, the accuracy is 0.
    """
    frames = []
    for cell in of:
        longest = max(record.series["seconds"][-1] for record in cell.records)
        times = np.linspace(0, longest, POINTS)
        rows = [_held(record, times) for record in cell.records]
        columns = bootstrap(median, np.array(rows)).columns("median")
        frames.append(pd.DataFrame({**cell.labels, "seconds": times, **columns}))
    return pd.concat(frames, ignore_index=True)


def _held(record: Record, times: Floats) -> Floats:
    """Return the last accuracy measured before each of the times."""
    seconds = np.asarray(record.series["seconds"], float)
    accuracy = np.array([0.0, *record.series["accuracy"]])
    return accuracy[np.searchsorted(seconds, times, side="right")]


APART = ("method", "workers", "period", "learning_rate")
"""The settings that distinguish runs in the tables."""

NAMES = {
    "agn-delta": "AGN (delta)",
    "agn-gradient": "AGN (gradient)",
    "downpour": "DOWNPOUR",
    "dynsgd": "DynSGD",
    "easgd": "EASGD",
    "synchronous": "synchronous",
}

OWN = "agn-delta"
"""AGN as its paper describes it."""

RATIO = 2.5
"""The ratio workers / period from which on AGN lost accuracy in the thesis."""

CLOSE = 0.05
"""The largest difference from a published accuracy; seeds differ as much."""


def _summary(name: str) -> Callable[[Record], float]:
    """Return a reader of a value of the summary; 0 if the run diverged."""
    return lambda record: float(record.summary.get(name, 0.0))


METRICS = {
    "accuracy": Metric(_summary("accuracy"), "share", "larger"),
    "mean accuracy": Metric(_summary("mean_accuracy"), "share", "larger"),
}
"""The metrics by which runs are compared."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, and check them."""
    found = cells(records)
    last = ends(found)
    contents = {
        "ends": last,
        "curves": curves(found),
    }
    return Judgement(tables=contents, checks=checks(last))


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's final accuracies with the published ones."""
    columns = [*ARM, "accuracy"]
    rows = published["ends"][columns].merge(
        own["ends"][columns], on=ARM, suffixes=("_published", "_own")
    )
    gap = np.abs(rows["accuracy_own"] - rows["accuracy_published"])
    return rows.assign(matches=gap <= CLOSE)


def checks(ends: pd.DataFrame) -> list[Check]:
    """Return each check with whether it holds."""
    own, downpour, synchronous = (
        ends[ends["method"] == name] for name in (OWN, "downpour", "synchronous")
    )
    every_step = own[own["period"] == 1].merge(
        downpour, on=ARM[1:], suffixes=("", "_downpour")
    )
    return [
        (
            "with a period of 1 AGN and DOWNPOUR are the same",
            all_hold(every_step["accuracy"] == every_step["accuracy_downpour"]),
        ),
        (
            "no push of a synchronous run is stale",
            all_hold(synchronous["staleness"] == 0),
        ),
        (
            "on average a push is stale by less than the number of workers",
            all_hold(ends["staleness"] < ends["workers"]),
        ),
    ]


COLUMNS = 3
"""The number of panels side by side."""

MOST = 5
"""The number of names that fit into one line of the legend."""

LOW = 0.5
"""The lower end of a heat map's color scale."""

CENTERED: Mapping[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}

STRONG = {"light": 0.93, "dark": 0.8}
"""The accuracy above which the other theme's ink is more readable on a cell."""


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    several = finding.tables["ends"]["workers"].nunique() > 1
    yield grid(finding) if several else periods(finding)
    yield draw_curves(finding)


def grid(finding: Finding) -> Drawing:
    """Final accuracy over workers and period; a heat map per method."""
    ends = finding.tables["ends"]
    table = ends[ends["best"]]
    methods = list(dict.fromkeys(table["method"]))
    lines = -(-len(methods) // COLUMNS)

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots(lines, min(COLUMNS, len(methods)), squeeze=False)
        panels = list(axes.flat)
        for panel, method in zip(panels, methods, strict=False):
            image = _heat(panel, theme, table[table["method"] == method])
            panel.set_title(NAMES[method])
        for panel in panels[len(methods) :]:
            panel.set_axis_off()
        canvas.supxlabel("workers", fontsize=9)
        canvas.supylabel("period: local steps between exchanges", fontsize=9)
        bar = canvas.colorbar(image, ax=axes, extend="min", aspect=30, format=percent())
        bar.set_label("held-out accuracy at the end")
        bar.outline.set_visible(False)
        if (table["workers"] / table["period"] >= RATIO).any():
            outlined = _outline((0, 0), theme)
            outlined.set_label(f"workers / period of {RATIO} or more")
            canvas.legend(handles=[outlined], loc="outside lower right")

    return Drawing(
        "grid",
        _title(table),
        alt="Accuracy of the shared weights at the end, over the number of workers and "
        f"the period, one heat map a method. {finding.answer}",
        caption="Held-out accuracy in per cent, median over seeds, at the same "
        f"learning rate. At {LOW:.0%} and below, cells have no color.",
        data=table,
        size=(WIDTH, 0.5 + 2.2 * lines),
        paint=paint,
    )


def _title(table: pd.DataFrame) -> str:
    """Name the method with the best worst cell, and the method of the worst cell."""
    worst = table.groupby("method", sort=False)["accuracy"].min().sort_values()
    if len(worst) < 2:
        return "Accuracy at the end over workers and period"
    low, high = worst.index[0], worst.index[-1]
    return (
        f"At its worst {NAMES[high]} reaches {worst.iloc[-1]:.0%}, "
        f"{NAMES[low]} {worst.iloc[0]:.0%}"
    )


def _heat(panel: Axes, theme: Theme, table: pd.DataFrame) -> AxesImage:
    """Color the cells of a method and write their values; outline the thesis' line."""
    values = table.pivot_table("accuracy", "period", "workers")
    ends = ["#ffffff00", theme.methods["default"]]
    colors = LinearSegmentedColormap.from_list("accuracy", ends)
    image = panel.imshow(
        values, colors, vmin=LOW, vmax=1, origin="lower", aspect="auto"
    )
    panel.set_xticks(range(len(values.columns)), [str(n) for n in values.columns])
    panel.set_yticks(range(len(values.index)), [str(p) for p in values.index])
    panel.grid(visible=False)
    for row, period in enumerate(values.index):
        for column, workers in enumerate(values.columns):
            accuracy = values.loc[period, workers]
            text, ink = f"{100 * accuracy:.0f}", _ink_on(theme, accuracy)
            panel.text(column, row, text, color=ink, **CENTERED)
            if workers / period >= RATIO:
                corner = (column - 0.46, row - 0.44)
                panel.add_patch(_outline(corner, theme))
    return image


def _ink_on(theme: Theme, accuracy: float) -> str:
    """Return the color of a cell's number: the other theme's ink on a strong color."""
    other = DARK if theme is LIGHT else LIGHT
    return (other if accuracy > STRONG[theme.name] else theme).ink


def _outline(corner: tuple[float, float], theme: Theme) -> Rectangle:
    return Rectangle(corner, 0.92, 0.88, fill=False, ec=theme.ink, lw=0.9)


def periods(finding: Finding) -> Drawing:
    """Final accuracy over the period, for runs with one number of workers."""
    ends = finding.tables["ends"]
    table = ends[ends["best"]].sort_values("period", kind="stable")
    workers = table["workers"].iloc[0]

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        for (method,), rows in grouped(table, "method"):
            style = _style(method, theme)
            band = rows["accuracy_low"], rows["accuracy_high"]
            axes.vlines(rows["period"], *band, color=style["color"])
            axes.plot(rows["period"], rows["accuracy"], marker="o", ms=4, **style)
        log_axis(axes, "x", sorted(set(table["period"])))
        axes.yaxis.set_major_formatter(percent())
        axes.set_xlabel("period: local steps between exchanges")
        axes.set_ylabel("held-out accuracy at the end")
        _legend(canvas, theme, [m for m in NAMES if m in set(table["method"])])

    return Drawing(
        "periods",
        _title(table),
        alt="Accuracy of the shared weights at the end over the period, with "
        f"{workers} workers, a line a method. {finding.answer}",
        caption=f"{workers} workers, each method at its best learning rate. "
        "Medians over seeds with 95% intervals.",
        data=table,
        size=(WIDTH, 3.4),
        paint=paint,
    )


def draw_curves(finding: Finding) -> Drawing:
    """Accuracy over simulated time with the most workers; a panel per period."""
    ends = finding.tables["ends"]
    table = finding.tables["curves"].merge(ends[ends["best"]][ARM])
    most = table[table["workers"] == table["workers"].max()]
    periods = sorted(set(most["period"]))[-COLUMNS:]
    shown = most[most["period"].isin(periods)]

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots(1, len(periods), sharey=True, squeeze=False)
        panels = list(axes.flat)
        for panel, period in zip(panels, periods, strict=True):
            of_period = shown[shown["period"] == period]
            for (method,), rows in grouped(of_period, "method"):
                style = _style(method, theme)
                panel.plot(rows["seconds"], rows["median"], **style)
                band = rows["low"], rows["high"]
                color = style["color"]
                panel.fill_between(
                    rows["seconds"], *band, color=color, alpha=0.15, lw=0
                )
            panel.set_title(f"period {period}")
            panel.set_xlabel("time (mean local steps)")
        panels[0].set_ylabel("held-out accuracy")
        panels[0].yaxis.set_major_formatter(percent())
        _legend(canvas, theme, list(dict.fromkeys(shown["method"])))

    workers = int(most["workers"].iloc[0])
    return Drawing(
        "curves",
        _title_of_curves(ends[ends["best"]], workers, periods[-1]),
        alt=f"Held-out accuracy over simulated time with {workers} workers, a panel a "
        f"period. {finding.answer}",
        caption="Median over seeds with 95% intervals; 0 until the first exchange. "
        "All methods do the same number of minibatches; longer periods wait for fewer "
        "messages and end earlier.",
        data=shown,
        size=(WIDTH, 3.4),
        paint=paint,
    )


def _title_of_curves(ends: pd.DataFrame, workers: int, period: int) -> str:
    """Quote the best and the worst method of a cell, with their final accuracies."""
    cell = ends[(ends["workers"] == workers) & (ends["period"] == period)]
    rows = cell.sort_values("accuracy", kind="stable")
    where = f"{workers} workers and a period of {period}"
    if len(rows) < 2:
        return f"Accuracy of the shared weights over time, {where}"
    low, high = rows.iloc[0], rows.iloc[-1]
    return (
        f"With {where}, {NAMES[high['method']]} ends at {high['accuracy']:.0%}, "
        f"{NAMES[low['method']]} at {low['accuracy']:.0%}"
    )


def _style(method: str, theme: Theme) -> dict[str, Any]:
    colors = {
        "agn-delta": theme.methods["default"],
        "agn-gradient": theme.methods["default"],
        "downpour": theme.methods["none"],
        "dynsgd": theme.methods["strict"],
        "easgd": theme.ink,
        "synchronous": theme.faint,
    }
    return {"color": colors[method], "ls": "--" if method == "agn-gradient" else "-"}


def _legend(canvas: Canvas, theme: Theme, methods: list[str]) -> None:
    handles = [Line2D([], [], label=NAMES[m], **_style(m, theme)) for m in methods]
    columns = len(handles) if len(handles) <= MOST else -(-len(handles) // 2)
    canvas.legend(handles=handles, loc="outside lower center", ncols=columns)
