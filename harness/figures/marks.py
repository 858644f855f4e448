"""What figures consist of: axes, lines with bands, dots in rows, legends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
)

from harness.figures.plot import Drawing
from harness.figures.style import PANEL, THIN, Theme, marker

Look: TypeAlias = dict[str, Any]
"""The settings of a line of matplotlib."""

DASHES: Sequence[Any] = ("-", "-", (0, (1, 1)), "--", "-.", (0, (5, 1)), ":")

LETTERS, HANDLE = 11.5, 7
"""The letters of a legend that fit into an inch; those that an entry's line takes."""

# -- tables ----------------------------------------------------------------------------


def unique(column: pd.Series) -> list[Any]:
    """Return the values of a column in order of appearance."""
    return list(dict.fromkeys(column))


def grouped(
    table: pd.DataFrame, *columns: str
) -> Iterator[tuple[list[str], pd.DataFrame]]:
    """Yield each combination of values of some columns, with its rows."""
    for values, rows in table.groupby(list(columns), sort=False):
        yield [str(value) for value in values], rows


def first_backend(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the backend in the first row; empty for an empty table."""
    rows: pd.DataFrame = table[table["backend"] == next(iter(table["backend"]), None)]
    return rows


# -- axes ------------------------------------------------------------------------------


def log_axis(
    panel: Axes, name: str, ticks: Sequence[float] = (), unit: str = ""
) -> None:
    """Make the axis ``name`` logarithmic, with ticks labelled by plain numbers.

    The default ticks are 1, 2 and 5 in each decade.
    """
    panel.set(**{f"{name}scale": "log"})
    axis = {"x": panel.xaxis, "y": panel.yaxis}[name]
    if ticks:
        axis.set_major_locator(FixedLocator(list(ticks)))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))


def percent() -> FuncFormatter:
    """Format shares as per cent."""
    return FuncFormatter(lambda value, _: f"{100 * value:g}%")


# -- marks -----------------------------------------------------------------------------


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


def curves(
    name: str,
    title: str,
    rows: pd.DataFrame,
    x: str,
    y: str,
    labels: tuple[str, str],
    *,
    looks: Callable[[Theme], Mapping[str, Look]],
    alt: str,
    caption: str,
    data: pd.DataFrame | None = None,
    axis: Callable[[Axes], object] | None = None,
) -> Drawing:
    """Return a figure of a line with its band for each ``method`` of some rows.

    Args:
        x, y: the columns. The interval of y, drawn as a band, is in ``y_low`` and
            ``y_high``, or else in ``low`` and ``high``.
        labels: of the axes.
        looks: returns the look of each method, with its label if that is no name.
        data: of the figure's file; by default the rows.
        axis: sets up the axes.
    """
    shown = rows if data is None else data

    def paint(canvas: Canvas, theme: Theme) -> None:
        panel, handles = canvas.subplots(), looks(theme)
        for (method,), of in grouped(rows, "method"):
            low, high = _ends(of, y)
            color = handles[method]["color"]
            panel.fill_between(of[x], low, high, color=color, alpha=0.2, lw=0)
            panel.plot(of[x], of[y], **handles[method])
        panel.set(xlabel=labels[0], ylabel=labels[1])
        if axis is not None:
            axis(panel)
        legend(canvas, {of.get("label", m): of for m, of in handles.items()})

    return Drawing(name, title, alt, caption, shown, (PANEL, 3.6), paint)


def legend(canvas: Canvas, handles: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw a legend below the panels: text -> the look of its line."""
    lines = [
        Line2D([], [], **{**look, "label": text}) for text, look in handles.items()
    ]
    sizes = [len(text) + HANDLE for text in handles]
    room = LETTERS * canvas.get_size_inches()[0]

    def width(columns: int) -> int:
        return sum(max(column) for column in np.array_split(sizes, columns))

    fits = (n for n in range(len(sizes), 1, -1) if width(n) <= room)
    columns = next(fits, 1)
    canvas.legend(handles=lines, loc="outside lower center", ncols=columns)


# -- dots ------------------------------------------------------------------------------


def dots(
    name: str,
    title: str,
    rows: pd.DataFrame,
    x: str,
    label: str,
    *,
    hues: Mapping[str, str],
    alt: str,
    caption: str,
    data: pd.DataFrame | None = None,
    level: float | None = None,
    law: str = "",
    control: str = "",
    axis: Callable[[Axes], object] | None = None,
) -> Drawing:
    """Return a figure of dots with intervals, under one another.

    Args:
        rows: a row a dot, with its backend, its ``case``, the name at the axis, and its
            ``hue``. Dots of one case are close.
        x: the column of the dot; its interval is found as in :func:`curves`.
        label: of the horizontal axis.
        hues: hue -> its text in the legend.
        data: of the figure's file; by default the rows.
        level: where a thin vertical line is.
        law: what the column ``law`` is, for ticks beside the dots.
        control: what ``control_low`` and ``control_high`` are, for grey lines.
        axis: sets up the horizontal axis.
    """
    cases = unique(rows["case"])
    backends = unique(rows["backend"])

    def paint(canvas: Canvas, theme: Theme) -> None:
        panel = canvas.subplots()
        grey: Look = {"color": theme.faint, "lw": 4, "alpha": 0.5}
        tick: Look = {"color": theme.ink, "marker": "|", "ms": 9, "lw": 0}
        low, high = _ends(rows, x)
        # An infinite end leaves the panel at its edge.
        edge = 2 * float(high[np.isfinite(high)].max())
        for place, row, start, end in zip(
            _places(rows, cases), rows.to_dict("records"), low, high, strict=True
        ):
            color = theme.hue(row["hue"])
            if control:
                panel.hlines(place, row["control_low"], row["control_high"], **grey)
            panel.hlines(place, start, min(end, edge), color=color, lw=1.6)
            panel.plot(row[x], place, **marker(row["backend"], backends, color))
            if law:
                panel.plot(row["law"], place, **tick)
        if level is not None:
            panel.axvline(level, color=theme.ink, lw=THIN, zorder=0)
        panel.set_yticks(range(len(cases)), [str(case) for case in cases])
        panel.set_ylim(len(cases) - 0.5, -0.5)
        panel.grid(visible=False, axis="y")
        panel.set_xlabel(label)
        if axis is not None:
            axis(panel)
        shown = [hue for hue in hues if hue in set(rows["hue"])]
        handles: dict[str, Look] = (
            {hues[hue]: {"color": theme.hue(hue)} for hue in shown}
            if len(shown) > 1
            else {}
        )
        if len(backends) > 1:
            handles |= {each: marker(each, backends, theme.ink) for each in backends}
        handles |= {law: tick} if law else {}
        handles |= {control: grey} if control else {}
        if handles:
            legend(canvas, handles)

    height = 1.3 + 0.1 * len(rows) + 0.17 * len(cases)
    shown = rows if data is None else data
    return Drawing(name, title, alt, caption, shown, (PANEL, height), paint)


def _places(rows: pd.DataFrame, cases: Sequence[str]) -> pd.Series:
    """Return the place of each row; rows of one case are beside one another."""
    group = rows.groupby("case")["case"]
    shift = (group.cumcount() + 0.5) / group.transform("size") - 0.5
    return rows["case"].map(cases.index) + 0.7 * shift


def _ends(rows: pd.DataFrame, name: str) -> tuple[pd.Series, pd.Series]:
    prefix = f"{name}_" if f"{name}_low" in rows else ""
    return rows[f"{prefix}low"], rows[f"{prefix}high"]
