"""The figures of the experiment, drawn from a finding's tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from harness.figures.axes import percent, plain
from harness.figures.plot import Drawing
from harness.figures.style import WIDTH, Theme, marker
from harness.figures.tables import grouped
from harness.judgement.finding import Finding

__all__ = ["drawings"]

NAMES = {"fp16": "float16 weights", "masters": "with float32 masters"}
COLOURS = {"fp16": "none", "masters": "default"}
LIMITS = (2048, 4096)


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    yield lost(finding)


def lost(finding: Finding) -> Drawing:
    """The share of lost updates over weight / update, and the relative movement."""
    table, law = finding.tables["updates"], finding.tables["law"]

    def paint(canvas: Canvas, theme: Theme) -> None:
        left, right = canvas.subplots(1, 2)
        left.plot(law["ratio"], law["lost"], color=theme.ink, lw=1, label="law")
        _points(left, table, theme, "first")
        _points(right, table, theme, "moved")
        for axes in (left, right):
            _axis(axes, table, theme)
        left.set_ylabel("share of updates lost")
        right.set_ylabel("way gone, of that asked for")
        _legend(canvas, table, theme)

    return Drawing(
        "lost",
        _title(table),
        alt="The share of lost updates and the way that weights went over the ratio of "
        f"weight and update, with and without masters. {finding.answer}",
        caption="First: updates lost in the first step; the line is log2(weight / "
        "update) - 11, the dotted ones its ends. Second: the way that the weights went "
        "over all steps. Medians over seeds with 95% intervals.",
        data=table,
        size=(WIDTH, 3.6),
        paint=paint,
    )


def _title(table: pd.DataFrame) -> str:
    """Quote the updates that float16 and masters lose, for the methods that ran."""
    plain, masters = (table[table["method"] == method] for method in NAMES)
    beyond = plain[plain["ratio"] > LIMITS[1]]["first"]
    parts = []
    if len(beyond):
        lost = f"{beyond.min():.0%} of their updates"
        parts.append(f"beyond {LIMITS[1]} float16 weights lose {lost}")
    if len(masters):
        parts.append(f"float32 masters lose {masters['lost'].max():.0%}")
    text = "; ".join(parts) or "the share of updates that is lost"
    return f"{text[:1].upper()}{text[1:]}"


def _points(axes: Axes, table: pd.DataFrame, theme: Theme, column: str) -> None:
    """Draw a marker with its interval for each ratio, method and backend."""
    backends = list(dict.fromkeys(table["backend"]))
    for (method, backend), rows in grouped(table, "method", "backend"):
        colour = theme.methods[COLOURS[method]]
        axes.vlines(
            rows["ratio"], rows[f"{column}_low"], rows[f"{column}_high"], color=colour
        )
        axes.plot(rows["ratio"], rows[column], **_marker(backend, backends, colour))


def _axis(axes: Axes, table: pd.DataFrame, theme: Theme) -> None:
    axes.set_xscale("log", base=2)
    powers = [r for r in sorted(set(table["ratio"])) if r.is_integer() and _is_power(r)]
    axes.xaxis.set_major_locator(FixedLocator(powers))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(plain())
    axes.yaxis.set_major_formatter(percent())
    axes.set_xlabel("weight / update")
    for limit in LIMITS:
        axes.axvline(limit, color=theme.ink, lw=1, ls=":")


def _is_power(ratio: float) -> bool:
    whole = int(ratio)
    return whole & (whole - 1) == 0


def _marker(backend: str, backends: Sequence[str], colour: str) -> dict[str, Any]:
    """Return the style of a backend's points; the first backend has smaller ones."""
    size = 4.5 if backend == backends[0] else 7.5
    return marker(backend, backends, colour) | {"ms": size}


def _legend(canvas: Canvas, table: pd.DataFrame, theme: Theme) -> None:
    backends = list(dict.fromkeys(table["backend"]))
    handles = [
        Line2D([], [], color=theme.methods[COLOURS[method]], lw=3, label=name)
        for method, name in NAMES.items()
        if method in set(table["method"])
    ]
    handles += [
        Line2D([], [], label=backend, **_marker(backend, backends, theme.ink))
        for backend in backends
    ]
    handles.append(Line2D([], [], color=theme.ink, lw=1, label="law"))
    canvas.legend(handles=handles, loc="outside lower center", ncols=len(handles))
