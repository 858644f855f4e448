"""The figure of a benchmark: every ratio with its interval, beside its goal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from functools import partial

import pandas as pd
from matplotlib.figure import Figure as Canvas

from harness.bench.compare import short
from harness.finding import Finding
from harness.plot import Drawing
from harness.style import MARKERS, Theme

__all__ = ["drawings"]

LINE = 78
"""Characters of a label that fit on one line."""

TINY = 0.1
"""Where a ratio is below this, ratios are drawn on a logarithmic axis."""


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the one figure: ratios to the peers."""
    ratios = finding.tables["ratios"]
    yield Drawing(
        name="ratios",
        title=f"{finding.title}: time, as a ratio to each peer",
        alt="For each setup a point: the time of ours over that of "
        f"its peer, with an interval, and a mark for the goal. {finding.answer}",
        caption="Left of 1 ours is the faster one. Points: ratio of the "
        "tenth percentiles; bars: 95 % bootstrap interval over rounds; vertical marks: "
        "the largest ratio wanted.",
        data=ratios,
        size=(5.6, 1.1 + 0.68 * len(ratios)),
        paint=partial(_paint, ratios=ratios),
    )


def _paint(canvas: Canvas, theme: Theme, ratios: pd.DataFrame) -> None:
    axes = canvas.subplots()
    beside = axes.get_yaxis_transform()
    axes.axvline(1, color=theme.faint, linewidth=1)
    for place, (_, row) in enumerate(ratios.iterrows()):
        host, ratio = str(row["host"]), float(row["ratio"])
        colour = theme.backends[host]
        axes.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=3)
        axes.plot(ratio, place, MARKERS[host], color=colour, markersize=7)
        axes.vlines(row["goal"], place - 0.18, place + 0.22, color=theme.ink)
        end = max(float(row["high"]), float(row["goal"]) if row["goal"] > 0 else 0.0)
        axes.annotate(
            short(ratio),
            (end, place),
            (6, 0),
            textcoords="offset points",
            va="center",
            color=theme.ink,
            fontsize=8,
        )
        label = textwrap.fill(_name(row), LINE)
        axes.text(0.01, place - 0.2, label, transform=beside, va="bottom", fontsize=8)
    axes.set_yticks([])
    axes.set_ylim(len(ratios) - 0.5, -0.75)
    largest = max(1.25, float(ratios["high"].max()) * 1.12)
    if float(ratios["ratio"].min()) < TINY:
        axes.set_xscale("log")
        axes.set_xlim(float(ratios["low"].min()) / 2, 2 * largest)
    else:
        axes.set_xlim(0, largest)
    axes.set_xlabel("our time / the peer's time (1 = the same)")
    axes.grid(visible=False, axis="y")


def _name(row: pd.Series) -> str:
    """Say what is measured on which host, and against what."""
    what = str(row["what"]).partition(", against ")[0]
    return f"{row['host']}: {what}, against {row['against']}"
