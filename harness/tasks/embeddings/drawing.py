"""Shared parts of the figures: names of the limits, curves, intervals and legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from harness.figures.style import Theme, symbol
from harness.figures.tables import grouped

__all__ = ["LINES", "NAMES", "colour", "draw_curves", "draw_intervals", "legend"]

NAMES = {
    "none": "no limit",
    "clip": "clipped after the step",
    "lookup": "normalized in the lookup",
    "normalise": "normalized before the step",
    "penalty": "L2 penalty",
}
LINES = {"none": "-", "clip": "--", "lookup": ":", "normalise": ":", "penalty": "-."}
COLOURS = {
    "none": "none",
    "clip": "default",
    "lookup": "strict",
    "normalise": "strict",
}
"""Limit -> the theme's method with its colour; ``clip`` is our wrapper."""


MOST = 4
"""The number of names that fit into one line of the legend."""


def colour(theme: Theme, limit: str) -> str:
    """Return the colour of a limit."""
    return theme.methods[COLOURS[limit]] if limit in COLOURS else theme.ink


def draw_curves(panel: Axes, rows: pd.DataFrame, theme: Theme) -> None:
    """Draw medians with bands; the first backend as lines, others as markers."""
    backends = list(dict.fromkeys(rows["backend"]))
    for (limit, backend), curve in grouped(rows, "limit", "backend"):
        ink, steps = colour(theme, limit), curve["step"]
        if backend == backends[0]:
            panel.fill_between(
                steps, curve["low"], curve["high"], color=ink, alpha=0.2, lw=0
            )
            panel.plot(steps, curve["median"], LINES[limit], color=ink)
        else:
            panel.plot(steps, curve["median"], marker=symbol(backend), **_hollow(ink))


def draw_intervals(panel: Axes, rows: pd.DataFrame, theme: Theme) -> None:
    """Draw estimates with intervals; the column ``place`` is the vertical position."""
    backends = list(dict.fromkeys(rows["backend"]))
    for _, row in rows.iterrows():
        ink = colour(theme, row["limit"])
        panel.plot([row["low"], row["high"]], [row["place"]] * 2, color=ink, lw=2)
        style = _hollow(ink) | {"marker": symbol(row["backend"]), "ms": 5}
        style["mfc"] = ink if row["backend"] == backends[0] else "none"
        panel.plot(row["estimate"], row["place"], **style)


def legend(
    canvas: Canvas,
    theme: Theme,
    limits: Iterable[str],
    backends: Iterable[str],
    extra: Sequence[Artist] = (),
    lines: bool = True,
) -> None:
    """Draw a legend below the panels: limits by line, backends by marker."""
    handles: list[Artist] = [
        Line2D(
            [],
            [],
            color=colour(theme, limit),
            ls=LINES[limit] if lines else "-",
            label=NAMES[limit],
        )
        for limit in dict.fromkeys(limits)
    ]
    named = list(dict.fromkeys(backends))
    for backend in named:
        if lines and backend == named[0]:
            continue
        label = f"{backend} (lines: {named[0]})" if lines else backend
        style = _hollow(theme.ink) | {"label": label, "marker": symbol(backend)}
        style["mfc"] = theme.ink if backend == named[0] else "none"
        handles.append(Line2D([], [], **style))
    handles += extra
    canvas.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(handles) if len(handles) <= MOST else -(-len(handles) // 2),
        handlelength=1.8,
        columnspacing=1.2,
    )


def _hollow(ink: str) -> dict[str, Any]:
    return {"color": ink, "mfc": "none", "ms": 3.5, "lw": 0}
