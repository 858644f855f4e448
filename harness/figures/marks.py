"""Marks that figures consist of: lines with bands, points in rows, a legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from harness.figures.style import Theme, marker

Look: TypeAlias = dict[str, Any]
"""The settings of a line of matplotlib."""

DASHES: Sequence[Any] = ("-", "-", (0, (1, 1)), "--", "-.", (0, (5, 1)), ":")
MOST, LONGEST = 5, 75
"""The number of names that fit into one line of a legend, and of their characters."""


def unique(column: pd.Series) -> list[Any]:
    """Return the values of a column in order of appearance."""
    return list(dict.fromkeys(column))


def looks(names: Sequence[str], theme: Theme) -> dict[str, Look]:
    """Return a colour and dashes for each name, in a fixed order."""
    palette = (
        theme.ink,
        theme.methods["none"],
        theme.backends["reference"],
        theme.methods["default"],
        theme.backends["pytorch"],
        theme.backends["tf"],
        theme.methods["strict"],
    )
    pairs = zip(dict.fromkeys(names), cycle(palette), cycle(DASHES), strict=False)
    return {name: {"color": color, "ls": dashes} for name, color, dashes in pairs}


def backend_looks(backends: pd.Series, theme: Theme) -> dict[str, Look]:
    """Return the marker of each backend for a legend."""
    names = unique(backends)
    return {name: marker(name, names, theme.ink) for name in names}


def line(panel: Axes, rows: pd.DataFrame, x: str, y: str, **look: Any) -> None:
    """Draw a line with its interval, the columns ``y_low`` and ``y_high``, as a band.

    Without columns of these names, the interval is in ``low`` and ``high``.
    """
    low, high = _ends(rows, y)
    panel.fill_between(rows[x], low, high, color=look["color"], alpha=0.2, lw=0)
    panel.plot(rows[x], rows[y], **look)


def forest(
    panel: Axes, table: pd.DataFrame, x: str, row: str, colors: Sequence[str]
) -> None:
    """Draw a point with its interval for each row of a table, under one another.

    Args:
        x: the column of the point; its interval is found as in :func:`line`.
        row: the column with the name at the axis. Points of one name are close.
        colors: one for each row of the table.
    """
    names, backends = unique(table[row]), unique(table["backend"])
    low, high = _ends(table, x)
    # An infinite end leaves the panel at its edge.
    edge = 2 * float(high[np.isfinite(high)].max())
    columns = zip(table[row], table["backend"], table[x], low, high, strict=True)
    counts = table[row].value_counts()
    drawn = dict.fromkeys(names, 0)
    for color, (name, backend, value, start, end) in zip(colors, columns, strict=True):
        place = names.index(name) + 0.6 * ((drawn[name] + 0.5) / counts[name] - 0.5)
        drawn[name] += 1
        panel.hlines(place, start, min(end, edge), color=color, lw=1.6)
        panel.plot(value, place, **marker(backend, backends, color))
    panel.set_yticks(range(len(names)), [str(name) for name in names])
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.grid(visible=False, axis="y")


def legend(canvas: Canvas, handles: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw a legend below the panels: text -> the look of its line."""
    lines = [
        Line2D([], [], **{**look, "label": text}) for text, look in handles.items()
    ]
    fits = len(lines) <= MOST and sum(map(len, handles)) <= LONGEST
    columns = len(lines) if fits else -(-len(lines) // 2)
    canvas.legend(handles=lines, loc="outside lower center", ncols=columns)


def _ends(rows: pd.DataFrame, name: str) -> tuple[pd.Series, pd.Series]:
    prefix = f"{name}_" if f"{name}_low" in rows else ""
    return rows[f"{prefix}low"], rows[f"{prefix}high"]
