"""The figure of the experiment: the scales over the steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from harness.figures.plot import Drawing
from harness.figures.style import WIDTH, Theme
from harness.figures.tables import grouped
from harness.judgement.finding import Finding
from harness.statistics import Floats

__all__ = ["drawings"]

TITLES = {
    "overflow": "Every step overflows",
    "zeros": "No gradients, growth at every step",
}
ZERO, INFINITE = -170, 146
"""Positions of 0 and infinity on an axis of log2(scale), outside float32's range."""

TICKS = {ZERO: "0", -126: "$2^{-126}$", -64: "$2^{-64}$", 0: "1", 64: "$2^{64}$"}
TICKS |= {127: "$2^{127}$", INFINITE: "∞"}
PEERS = {"pytorch": "--", "tf": ":"}


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figure with a panel per situation; nothing if no scale moves."""
    table = finding.tables["trajectories"]
    situations = list(dict.fromkeys(table["situation"]))
    if not situations:
        return

    def paint(canvas: Canvas, theme: Theme) -> None:
        panels = canvas.subplots(1, len(situations), sharey=True, squeeze=False)[0]
        for panel, situation in zip(panels, situations, strict=True):
            _panel(panel, theme, table[table["situation"] == situation])
            panel.set_title(TITLES[situation])
        panels[0].set_ylabel("loss scale")
        panels[0].set_yticks(list(TICKS), list(TICKS.values()))
        _legend(canvas, theme, table)

    yield Drawing(
        "scales",
        _message(finding.tables["overflow"]),
        alt=f"The loss scale over the steps in two situations. {finding.answer}",
        caption="The scale after each step; Lockstep in every way it can be used. Step "
        "1 is the first of the situation; the finite steps that follow it are shaded.",
        data=table.drop(columns="peer"),
        size=(WIDTH, 4.2),
        paint=paint,
    )


def _message(overflow: pd.DataFrame) -> str:
    """Return the title: the scaler that falls to 0, and whether weights become NaN."""
    lost = overflow[overflow["scale"] == 0]
    names = " and ".join(dict.fromkeys(map(_short, lost["scaler"])))
    if not len(overflow):
        return "The loss scale while it grows at every step"
    if not names:
        return "No scale falls to 0"
    ending = "" if (lost["finite"] == 1).any() else ", then their weights are NaN"
    return f"{names} fall to 0{ending}"


def _short(name: str) -> str:
    """Return a class name without its library."""
    return name.replace(".", " ").split(" ")[-1]


def _panel(panel: Axes, theme: Theme, table: pd.DataFrame) -> None:
    for (_, backend), run in grouped(table, "scaler", "backend"):
        peer, heights = bool(run["peer"].iloc[0]), _heights(run["scale"])
        panel.plot(run["step"], heights, **_line(theme, backend, peer))
        marks = ("o", run["told"].to_numpy()), ("X", _broken(run))
        for marker, at in marks:
            colour = _line(theme, backend, peer)["color"]
            panel.plot(
                run["step"][at], heights[at], marker, color=colour, ms=7, zorder=5
            )
    shaded = table[table["after"]]["step"]
    if len(shaded):
        panel.axvspan(shaded.min(), shaded.max(), color=theme.faint, alpha=0.2, lw=0)
    panel.set_xlabel("step")


def _broken(run: pd.DataFrame) -> Any:
    """Return a mask of the steps at which the weights become non-finite: [steps]."""
    finite = run["finite"].to_numpy()
    return ~finite & np.concatenate([[True], finite[:-1]])


def _heights(scales: pd.Series) -> Floats:
    """Return log2 of the scales, with fixed positions for 0 and infinity."""
    values = scales.to_numpy(float)
    with np.errstate(divide="ignore"):
        heights: Floats = np.log2(values)
    heights[values == 0], heights[np.isinf(values)] = ZERO, INFINITE
    return heights


def _line(theme: Theme, backend: str, peer: bool) -> dict[str, Any]:
    """Return the style of a scale; ours has one style on all backends."""
    if not peer:
        return {"color": theme.methods["default"], "ls": "-", "lw": 2.6}
    name = backend.split(" ")[0]
    colour = theme.backends[name]
    return {"color": colour, "ls": PEERS.get(name, "-."), "lw": 2.0, "zorder": 3}


def _legend(canvas: Canvas, theme: Theme, table: pd.DataFrame) -> None:
    """Draw a legend of lines and marks below the panels."""
    handles = [Line2D([], [], label="Lockstep", **_line(theme, "", peer=False))]
    peers = table[table["peer"]].drop_duplicates(["scaler", "backend"])
    handles += [
        Line2D([], [], label=row["scaler"], **_line(theme, row["backend"], peer=True))
        for _, row in peers.iterrows()
    ]
    marks = {"o": "somebody was told", "X": "weights NaN from here"}
    style: dict[str, Any] = {"color": theme.ink, "lw": 0, "ms": 7}
    handles += [
        Line2D([], [], marker=marker, label=label, **style)
        for marker, label in marks.items()
    ]
    canvas.legend(handles=handles, loc="outside lower center", ncols=3)
