"""The figures of every experiment with workers, drawn from a finding's tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from harness.figures.axes import log_axis, percent
from harness.figures.plot import Drawing
from harness.figures.style import THIN, WIDTH, Theme
from harness.figures.tables import grouped
from harness.judgement.finding import Finding
from harness.tasks.worker_team.settings import PERIODS
from harness.tasks.worker_team.tables import DDP

__all__ = ["histograms", "paint_rates", "rates"]

MARKERS = {1: "o", 10: "s", 40: "^"}
COLORS = {1: "none", 10: "default", 40: "strict"}
"""Period -> the color of a method."""

GAP = 0.07
"""The minimum distance of two names, as a share of the axis."""

FORMATS = {DDP: "-", "period 1": ":", "period 10": "--", "period 40": "-."}


def rates(finding: Finding, lines: str) -> Drawing:
    """Measured and expected steps per second over the number of workers.

    ``lines``: the description of the lines in the caption.
    """
    table = finding.tables["steps"]

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        paint_rates(axes, table, theme)
        axes.set_ylabel("local steps a second, all workers")

    return Drawing(
        "rates",
        _title(table),
        alt="Local steps a second of all workers over their number, with DDP and with "
        f"AGN at three periods. {finding.answer}",
        caption=f"Points: measured, median over runs with its 95% interval. {lines} "
        "Both axes are logarithmic.",
        data=table,
        size=(WIDTH, 3.6),
        paint=paint,
    )


def paint_rates(axes: Axes, table: pd.DataFrame, theme: Theme) -> None:
    """Paint measured and expected steps per second over workers, without a y label."""
    workers = sorted(set(table["workers"]))
    for (mode,), rows in grouped(table, "mode"):
        _paint_mode(axes, mode, rows.sort_values("workers"), theme)
    log_axis(axes, "x", workers)
    log_axis(axes, "y")
    # Space for the names beside the last points.
    span = max(workers[-1] / workers[0], 2)
    axes.set_xlim(workers[0] * 0.85, workers[-1] * span**0.4)
    axes.set_xlabel("workers")
    _name_lines(axes, table[table["workers"] == workers[-1]], theme)


def _title(table: pd.DataFrame) -> str:
    most = table[table["workers"] == table["workers"].max()]
    row = most[most["period"] > 1].sort_values("period").iloc[0]
    count = int(row["workers"])
    who = f"{count} workers reach" if count > 1 else "one worker reaches"
    gain = f"{row['over_ddp']:.1f} times as many steps per second as DDP"
    return f"With a period of {row['period']}, {who} {gain}"


def _paint_mode(axes: Axes, mode: str, rows: pd.DataFrame, theme: Theme) -> None:
    period = int(rows["period"].iloc[0])
    is_ddp, color = mode == DDP, _color(mode, period, theme)
    foreseen = "expected" in rows and rows["expected"].notna().all()
    line = rows["expected" if foreseen else "steps"]
    width = THIN if is_ddp else None
    axes.plot(rows["workers"], line, color=color, ls=FORMATS[mode], lw=width)
    axes.vlines(rows["workers"], rows["steps_low"], rows["steps_high"], color=color)
    marker = "D" if is_ddp else MARKERS[period]
    axes.plot(rows["workers"], rows["steps"], color=color, marker=marker, ms=5, lw=0)


def _color(mode: str, period: int, theme: Theme) -> str:
    return theme.ink if mode == DDP else theme.methods[COLORS[period]]


def _name_lines(axes: Axes, last: pd.DataFrame, theme: Theme) -> None:
    """Write the names beside the last points; overlapping names move up."""
    low, high = np.log10(axes.get_ylim())
    above = -np.inf
    for row in last.sort_values("steps").to_dict("records"):
        above = max(np.log10(row["steps"]), above + GAP * (high - low))
        color = _color(row["mode"], row["period"], theme)
        place = (row["workers"] * 1.08, 10**above)
        axes.text(*place, row["mode"], color=color, va="center", fontsize=9)


def histograms(finding: Finding) -> Drawing:
    """The staleness of pushes with the most workers, in rounds; a panel per period."""
    table = finding.tables["staleness"]
    workers = int(table["workers"].max())
    shown = table[table["workers"] == workers]

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots(1, len(PERIODS), sharex=True, sharey=True)
        for panel, period in zip(axes, PERIODS, strict=True):
            rows = shown[shown["period"] == period]
            color = theme.methods[COLORS[period]]
            panel.bar(rows["staleness"], rows["share"], color=color, width=0.8)
            panel.axvline(workers - 1, color=theme.ink, lw=THIN, ls="--")
            panel.set_title(f"period {period}")
            panel.set_xlabel("rounds of others since the pull")
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
            panel.yaxis.set_major_formatter(percent())
        axes[0].set_ylabel("share of pushes")
        axes[0].set_xlim(-0.7, max(1.7 * workers, workers + 1))

    usual = shown.groupby("staleness")["share"].sum().idxmax()
    return Drawing(
        "staleness",
        f"With {workers} workers a push is mostly {usual} rounds behind",
        alt=f"Histograms of staleness with {workers} workers, a panel a period.",
        caption=f"Pushes of all runs with {workers} workers. The dashed line is "
        "workers - 1, the law for the mean; the first pushes are less behind.",
        data=shown,
        size=(WIDTH, 2.9),
        paint=paint,
    )
