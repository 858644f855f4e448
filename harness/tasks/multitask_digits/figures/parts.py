"""Shared parts of the figures: names and lines of the methods, axes and legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from harness.figures.style import Theme, marker
from harness.tasks.absent_heads.drawing import LINES
from harness.tasks.absent_heads.drawing import NAMES as METHODS

__all__ = [
    "LINES",
    "METHODS",
    "legend",
    "points",
    "rarest",
    "row_of_panels",
]

MOST = 5
"""The number of names that fit into one line of the legend."""


def rarest(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the smallest p."""
    rows: pd.DataFrame = table[table["presence"] == table["presence"].min()]
    return rows


def row_of_panels(canvas: Canvas, titles: Sequence[str]) -> list[Axes]:
    """Return one panel per title, side by side, with a shared vertical axis."""
    panels = list(canvas.subplots(1, len(titles), sharey=True, squeeze=False)[0])
    for panel, title in zip(panels, titles, strict=True):
        panel.set_title(title)
    return panels


def points(
    theme: Theme, wrapper: str, backend: str, backends: Sequence[str]
) -> dict[str, Any]:
    """Return the style of measured points; only the first backend is filled."""
    return marker(backend, backends, theme.methods[wrapper])


def legend(
    canvas: Canvas,
    theme: Theme,
    wrappers: Iterable[str],
    backends: Iterable[str] = (),
    extra: Sequence[Line2D] = (),
) -> None:
    """Draw a legend below the panels: methods by line, backends by marker."""
    handles: list[Line2D] = [
        Line2D([], [], color=theme.methods[name], ls=LINES[name], label=METHODS[name])
        for name in dict.fromkeys(wrappers)
    ]
    named = list(dict.fromkeys(backends))
    for backend in named:
        style = marker(backend, named, theme.ink)
        handles.append(Line2D([], [], label=backend, **style))
    handles += extra
    columns = len(handles) if len(handles) <= MOST else -(-len(handles) // 2)
    canvas.legend(handles=handles, loc="outside lower center", ncols=columns)
