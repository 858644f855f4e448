"""Logarithmic axes with plain numbers, axes in per cent, and bars with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
)


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
    axis.set_major_formatter(plain(unit))


def plain(unit: str = "") -> FuncFormatter:
    """Format numbers without powers of ten, followed by a unit."""
    return FuncFormatter(lambda value, _: f"{value:g}{unit}")


def percent() -> FuncFormatter:
    """Format shares as per cent."""
    return FuncFormatter(lambda value, _: f"{100 * value:g}%")


def bars(
    panel: Axes,
    places: Sequence[float],
    rows: pd.DataFrame,
    name: str,
    texts: Sequence[str],
    **look: Any,
) -> None:
    """Paint horizontal bars of a column with its intervals, and a text beside each."""
    middle, high = rows[name], rows[f"{name}_high"]
    spread = [middle - rows[f"{name}_low"], high - middle]
    panel.barh(places, middle, **look)
    panel.errorbar(middle, places, xerr=spread, fmt="none", ecolor="gray")
    for place, end, text in zip(places, high, texts, strict=True):
        panel.annotate(f" {text}", (end, place), va="center")
