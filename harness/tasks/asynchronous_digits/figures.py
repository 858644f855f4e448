"""The figures of the experiment, each a function of a finding's tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from harness.axes import percent
from harness.finding import Finding
from harness.plot import Drawing
from harness.style import WIDTH, Theme
from harness.tables import grouped
from harness.tasks.asynchronous_digits.findings import NAMES, RATIO
from harness.tasks.asynchronous_digits.tables import ARM

__all__ = ["drawings"]

COLUMNS = 3
"""Panels side by side."""

MOST = 5
"""Names that fit into one line of the legend."""

LOW = 0.5
"""The accuracy at which the colors of a heat map begin."""


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield what there is to draw, in reading order."""
    yield grid(finding)
    yield curves(finding)


def grid(finding: Finding) -> Drawing:
    """A heat map a method: accuracy at the end over workers and period."""
    ends = finding.tables["ends"]
    table = ends[ends["best"]]
    methods = list(dict.fromkeys(table["method"]))
    lines = -(-len(methods) // COLUMNS)

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots(lines, min(COLUMNS, len(methods)), squeeze=False)
        panels = list(axes.flat)
        for panel, method in zip(panels, methods, strict=False):
            _heat(panel, theme, table[table["method"] == method])
            panel.set_title(NAMES[method])
        for panel in panels[len(methods) :]:
            panel.set_axis_off()
        canvas.supxlabel("workers", fontsize=9)
        canvas.supylabel("period: local steps between exchanges", fontsize=9)

    return Drawing(
        "grid",
        _title(table),
        alt="Accuracy of the shared weights at the end, over the number of workers and "
        f"the period, one heat map a method. {finding.answer}",
        caption="Held-out accuracy in per cent, median over seeds, at the best rate of "
        f"a method. In the outlined cells workers / period is {RATIO} or more.",
        data=table,
        size=(WIDTH, 0.5 + 2.2 * lines),
        paint=paint,
    )


def _title(table: pd.DataFrame) -> str:
    """Name the method whose worst cell is best, and that of the worst cell."""
    worst = table.groupby("method", sort=False)["accuracy"].min().sort_values()
    if len(worst) < 2:
        return "Accuracy at the end over workers and period"
    low, high = worst.index[0], worst.index[-1]
    return (
        f"In its worst cell {NAMES[high]} reaches {worst.iloc[-1]:.0%}, "
        f"{NAMES[low]} {worst.iloc[0]:.0%}"
    )


def _heat(panel: Axes, theme: Theme, table: pd.DataFrame) -> None:
    """Color the cells of a method, write their numbers, outline those of the line."""
    values = table.pivot_table("accuracy", "period", "workers")
    ends = ["#ffffff00", theme.methods["default"]]
    colors = LinearSegmentedColormap.from_list("accuracy", ends)
    panel.imshow(values, colors, vmin=LOW, vmax=1, origin="lower", aspect="auto")
    panel.set_xticks(range(len(values.columns)), [str(n) for n in values.columns])
    panel.set_yticks(range(len(values.index)), [str(p) for p in values.index])
    panel.grid(visible=False)
    for row, period in enumerate(values.index):
        for column, workers in enumerate(values.columns):
            text = f"{100 * values.loc[period, workers]:.0f}"
            panel.text(column, row, text, ha="center", va="center", fontsize=8)
            if workers / period >= RATIO:
                corner = (column - 0.46, row - 0.44)
                panel.add_patch(_outline(corner, theme))


def _outline(corner: tuple[float, float], theme: Theme) -> Rectangle:
    return Rectangle(corner, 0.92, 0.88, fill=False, ec=theme.ink, lw=0.9)


def curves(finding: Finding) -> Drawing:
    """A panel a period: accuracy over simulated time, with the most workers."""
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
        f"Accuracy of the shared weights over time, {workers} workers",
        alt=f"Held-out accuracy over simulated time with {workers} workers, a panel a "
        f"period. {finding.answer}",
        caption="Median over seeds with 95 % intervals. All methods do the same number "
        "of minibatches; longer periods wait for fewer messages and end earlier.",
        data=shown,
        size=(WIDTH, 3.4),
        paint=paint,
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
