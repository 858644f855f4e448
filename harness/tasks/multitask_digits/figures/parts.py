"""What the figures share: names and lines of the methods, axes and the legend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from harness.style import MARKERS, Theme

__all__ = [
    "LINES",
    "METHODS",
    "THIN",
    "WIDTH",
    "grouped",
    "legend",
    "log_axis",
    "marker",
    "points",
    "rarest",
    "row_of_panels",
]

METHODS = {"none": "zeros fed", "default": "with wrapper", "strict": "strict wrapper"}
LINES = {"none": "-", "default": "--", "strict": ":"}
WIDTH = 7.6
THIN = 0.8


def rarest(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the smallest p."""
    rows: pd.DataFrame = table[table["presence"] == table["presence"].min()]
    return rows


def grouped(
    table: pd.DataFrame, *columns: str
) -> Iterator[tuple[list[str], pd.DataFrame]]:
    """Yield the values of some columns with the rows that have them."""
    for values, rows in table.groupby(list(columns), sort=False):
        yield [str(value) for value in values], rows


def row_of_panels(canvas: Canvas, titles: Sequence[str]) -> list[Axes]:
    """Make one panel a title, side by side, with one scale of y."""
    panels = list(canvas.subplots(1, len(titles), sharey=True, squeeze=False)[0])
    for panel, title in zip(panels, titles, strict=True):
        panel.set_title(title)
    return panels


def points(
    theme: Theme, wrapper: str, host: str, hosts: Sequence[str]
) -> dict[str, Any]:
    """Return the style of measured points: filled for the first host only."""
    colour = theme.methods[wrapper]
    filled = colour if host == hosts[0] else "none"
    return {"color": colour, "mfc": filled, "ms": 4.5, "lw": 0, "marker": marker(host)}


def marker(host: str) -> str:
    """Return the marker of a host's backend."""
    return MARKERS[host.split(" ")[0]]


def log_axis(panel: Axes, name: str, ticks: Sequence[float], unit: str = "") -> None:
    """Give the axis ``name`` a logarithmic scale with these ticks, written plainly."""
    panel.set(**{f"{name}scale": "log"})
    axis = {"x": panel.xaxis, "y": panel.yaxis}[name]
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))


def legend(
    canvas: Canvas,
    theme: Theme,
    wrappers: Iterable[str],
    hosts: Iterable[str] = (),
    extra: Sequence[Line2D] = (),
) -> None:
    """Name methods by line and colour and hosts by marker, below the panels."""
    handles: list[Line2D] = [
        Line2D([], [], color=theme.methods[name], ls=LINES[name], label=METHODS[name])
        for name in dict.fromkeys(wrappers)
    ]
    named = list(dict.fromkeys(hosts))
    for host in named:
        style = points(theme, "none", host, named) | {"color": theme.ink}
        style["mfc"] = theme.ink if host == named[0] else "none"
        handles.append(Line2D([], [], label=host, **style))
    handles += extra
    canvas.legend(handles=handles, loc="outside lower center", ncols=len(handles))
