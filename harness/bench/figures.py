"""The figures of a benchmark: ratios, and microseconds."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from harness.bench.compare import short
from harness.figures.plot import Drawing
from harness.figures.style import Theme, symbol
from harness.judgement.finding import Finding

LINE = 58
"""Characters of a label that fit on one line."""

TINY = 0.1
"""Ratios are drawn on a logarithmic axis if one of them is below this."""

READING = (
    "Points: the {what} of tenth percentiles, averaged over processes. Bars: 95% "
    "intervals (Student's t over processes), if there are several."
)


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures: ratios, microseconds."""
    if "rows" not in finding.tables:
        return
    rows = finding.tables["rows"]
    # Controls, a variant compared with itself, are in the table only.
    rows = rows[~rows["control"].astype(bool)]
    verdict = f", {finding.verdict}" if finding.verdict else ""
    for name, what, title in (
        ("ratios", "ratio", f"against its peers{verdict}"),
        ("microseconds", "difference, or the time alone,", "microseconds a step"),
    ):
        ratios = name == "ratios"
        table = rows[(rows["unit"] == "") == ratios].reset_index(drop=True)
        side = "Below 1, Lockstep is faster. " if ratios else ""
        if len(table):
            yield Drawing(
                name=name,
                title=f"{finding.title}: {title}",
                alt=f"For each row a point with an interval. {finding.answer}",
                caption=side + READING.format(what=what),
                data=table,
                size=(4.2, 1.1 + 0.68 * len(table)),
                paint=partial(_paint_effects, table=table, ratios=ratios),
            )


def _paint_effects(
    canvas: Canvas, theme: Theme, table: pd.DataFrame, ratios: bool
) -> None:
    axes = canvas.subplots()
    axes.axvline(1 if ratios else 0, color=theme.faint, linewidth=1)
    for place, (_, row) in enumerate(table.iterrows()):
        _paint_row(axes, theme, place, row)
    axes.set_yticks([])
    axes.set_ylim(len(table) - 0.5, -0.75)
    axes.grid(visible=False, axis="y")
    ends = table[["value", "low", "high"]].to_numpy(float)
    largest = float(np.nanmax(ends))
    if ratios and float(table["value"].min()) < TINY:
        axes.set_xscale("log")
        axes.set_xlim(float(np.nanmin(ends)) / 2, max(1.25, largest) * 2)
    else:
        smallest = min(0.0, float(np.nanmin(ends)))
        axes.set_xlim(smallest * 1.1, max(1.25 if ratios else 0.0, largest) * 1.12)
    ratio = "time of Lockstep / time of the other (1 = the same)"
    axes.set_xlabel(ratio if ratios else "microseconds a step")


def _paint_row(axes: Axes, theme: Theme, place: int, row: pd.Series) -> None:
    backend, value = str(row["backend"]), float(row["value"])
    colour = theme.backends[backend]
    low, high = float(row["low"]), float(row["high"])
    axes.plot([low, high], [place, place], color=colour, linewidth=3)
    axes.plot(value, place, symbol(backend), color=colour, markersize=7)
    end = float(np.nanmax([value, high]))
    said = f"{short(value)} {row['verdict']}".strip()
    look: dict[str, Any] = {"color": theme.ink, "fontsize": 8}
    axes.annotate(
        said, (end, place), (6, 0), textcoords="offset points", va="center", **look
    )
    against = f", against {row['against']}" if row["against"] else ""
    label = textwrap.fill(f"{backend}: {row['what']}{against}", LINE)
    beside = axes.get_yaxis_transform()
    axes.text(0.01, place - 0.2, label, transform=beside, va="bottom", fontsize=8)
