"""The figures of the experiment, drawn from a finding's tables."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from harness.figures.axes import log_axis
from harness.figures.plot import Drawing
from harness.figures.style import DARK, LIGHT, WIDTH, Theme
from harness.figures.tables import first_backend
from harness.judgement.finding import Finding
from harness.tasks.stable_rates.findings import PLAIN, extremes, factor, named
from harness.tasks.stable_rates.tables import BAR

__all__ = ["drawings"]

CENTERED: Mapping[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}

CHANCE = 0.1
"""The accuracy of a guess among ten digits; cells up to it have no color."""

STRONG = {"light": 0.75, "dark": 0.72}
"""The accuracy above which the other theme's ink is more readable on a cell."""


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    yield sweeps(finding)
    yield ranges(finding)


def sweeps(finding: Finding) -> Drawing:
    """Final accuracy over rate and batch; a heat map per method."""
    table = first_backend(finding.tables["sweeps"])
    methods = list(dict.fromkeys(table["method"]))
    batches = sorted(set(table["batch"]))

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots(len(methods), sharex=True, squeeze=False)
        panels = list(axes.flat)
        for panel, method in zip(panels, methods, strict=True):
            _heat(panel, theme, table[table["method"] == method])
            panel.set_title(named(method))
        canvas.supylabel("batch (images a step)", fontsize=9)
        panels[-1].set_xlabel("learning rate")
        outlined = _outline(0, 0, 1, theme)
        outlined.set_label(f"rates that reach {100 * BAR:.0f}%")
        canvas.legend(handles=[outlined], loc="outside lower right")

    return Drawing(
        "sweeps",
        _title_of_sweeps(first_backend(finding.tables["ranges"])),
        alt="Accuracy of a deep net at the end of training over learning rate and "
        f"batch, one heat map a method. {finding.answer}",
        caption="Held-out accuracy in per cent, median over seeds; "
        f"{100 * CHANCE:g} is chance. All batches see the same number of epochs.",
        data=table,
        size=(WIDTH, 0.9 + len(methods) * (0.35 + 0.27 * len(batches))),
        paint=paint,
    )


def _title_of_sweeps(ranges: pd.DataFrame) -> str:
    """Quote the stable rates with the largest batch, for two methods."""
    high, low = extremes(ranges)
    text = f"{named(high['method'])} trains at {_ends(high)}"
    if high["method"] != low["method"]:
        text += f", {named(low['method'])} at {_ends(low)}"
    return f"With a batch of {high['batch']:,}, {text}"


def _ends(row: pd.Series) -> str:
    """Return the rates of a range as text."""
    if not row["lowest"]:
        return "no rate"
    if row["lowest"] == row["highest"]:
        return f"a rate of {row['lowest']:g}"
    return f"rates from {row['lowest']:g} to {row['highest']:g}"


def _title_of_ranges(ranges: pd.DataFrame) -> str:
    """Quote the factor by which the rate may change, for two methods."""
    high, low = extremes(ranges)
    text = (
        f"The rate may change by a factor of {factor(high)} ({named(high['method'])})"
    )
    if high["method"] != low["method"]:
        text += f" and {factor(low)} ({named(low['method'])})"
    return f"{text} with a batch of {high['batch']:,}"


def _heat(panel: Axes, theme: Theme, table: pd.DataFrame) -> None:
    """Color the cells of a method, write their values, outline the stable ranges."""
    values = table.pivot_table("accuracy", "batch", "rate")
    stable = table.pivot_table("stable", "batch", "rate", aggfunc="max")
    color = theme.methods["default"]
    # The colormap begins with the same color without opacity, to show the page.
    colors = LinearSegmentedColormap.from_list("accuracy", [f"{color}00", color])
    panel.imshow(values, colors, vmin=CHANCE, vmax=1, origin="lower", aspect="auto")
    panel.set_xticks(range(len(values.columns)), [f"{r:g}" for r in values.columns])
    panel.set_yticks(range(len(values.index)), [f"{b:,}" for b in values.index])
    panel.grid(visible=False)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    for row, batch in enumerate(values.index):
        for column, accuracy in enumerate(values.loc[batch]):
            ink = _ink_on(theme, accuracy)
            panel.text(column, row, f"{100 * accuracy:.0f}", color=ink, **CENTERED)
        inside = [k for k, held in enumerate(stable.loc[batch]) if held]
        if inside:
            panel.add_patch(_outline(inside[0], row, len(inside), theme))


def _ink_on(theme: Theme, accuracy: float) -> str:
    """Return the color of a cell's number: the other theme's ink on a strong color."""
    other = DARK if theme is LIGHT else LIGHT
    return (other if accuracy > STRONG[theme.name] else theme).ink


def _outline(column: float, row: float, length: int, theme: Theme) -> Rectangle:
    """Return a frame around adjacent cells of a row."""
    corner = (column - 0.46, row - 0.42)
    return Rectangle(corner, length - 0.08, 0.84, fill=False, ec=theme.ink, lw=1.4)


def ranges(finding: Finding) -> Drawing:
    """The factor by which the rate may change; a line per method and batch."""
    table = first_backend(finding.tables["ranges"])
    methods = list(dict.fromkeys(table["method"]))
    batches = sorted(set(table["batch"]))

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        step = 0.8 / len(batches)
        for row in table.to_dict("records"):
            above = methods.index(row["method"]) - 0.4
            place = above + step * (batches.index(row["batch"]) + 0.5)
            _range(axes, theme, row, place)
        decades = 1 + int(np.log10(table["width_high"].max()))
        log_axis(axes, "x", [10**k for k in range(decades)])
        axes.set_xlabel("stable range: highest / lowest rate that trains")
        axes.set_yticks(range(len(methods)), map(named, methods))
        axes.set_ylim(len(methods) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0.7, 50 * table["width_high"].max())

    return Drawing(
        "ranges",
        _title_of_ranges(table),
        alt="By what factor the learning rate may change while a deep net trains, for "
        f"each method and batch. {finding.answer}",
        caption="Medians over seeds with 95% intervals. An arrow marks a range that "
        "reaches an end of the sweep and may be wider.",
        data=table,
        size=(WIDTH, 1.0 + 0.25 * len(methods) * len(batches)),
        paint=paint,
    )


def _range(axes: Axes, theme: Theme, row: Mapping[Hashable, Any], place: float) -> None:
    """Draw one range on its line: the interval, the median and its batch."""
    color = theme.methods["none" if row["method"] == PLAIN else "default"]
    axes.hlines(place, row["width_low"], row["width_high"], color=color)
    symbol = ">" if row["open"] else "o"
    axes.plot(row["width"], place, marker=symbol, ms=6, color=color)
    beside: Mapping[str, Any] = {"xytext": (7, 0), "textcoords": "offset points"}
    text = f"batch {row['batch']:,}: {factor(row)}"
    axes.annotate(text, (row["width_high"], place), va="center", fontsize=8, **beside)
