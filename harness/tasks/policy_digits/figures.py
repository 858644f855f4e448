"""The figures of the experiment, drawn from a finding's tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from harness.figures.axes import log_axis
from harness.figures.plot import Drawing
from harness.figures.style import WIDTH, Theme, marker
from harness.figures.tables import grouped
from harness.judgement.finding import Finding

__all__ = ["drawings"]

LINES = {"default": "-", "strict": "--"}
WIDTHS = {"default": 1.6, "strict": 2.4}
COLUMNS = 4


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    yield rates(finding)
    yield losses(finding)
    yield ends(finding)


def rates(finding: Finding) -> Drawing:
    """The rate over the steps, strict and default; a panel per schedule."""
    table, peaks = finding.tables["schedules"], finding.tables["peaks"]
    early = peaks[peaks["law"] < 1]["peak"].tolist()
    title = "The learning rate over the steps, strict and default"
    if early:
        title = f"poly_decay without waiting peaks at {early[0]:.2f} of its rate"

    def paint(canvas: Canvas, theme: Theme) -> None:
        panels = _panels(canvas, table)
        for panel, (_, rows) in zip(panels, grouped(table, "schedule"), strict=False):
            for mode in _modes(rows):
                of_mode = rows[rows["mode"] == mode]
                _line(panel, theme, mode, of_mode["step"], of_mode["rate"])
        _legend(canvas, theme, _modes(table))
        panels[0].set_ylim(bottom=0)
        for panel in panels[::COLUMNS]:
            panel.set_ylabel("learning rate")

    return Drawing(
        "rates",
        title,
        alt="The learning rate over the steps for each schedule, strict and default. "
        f"{finding.answer}",
        caption="All schedules are given the same rate. Where one line is seen, strict "
        "and default are the same.",
        data=table,
        size=(WIDTH, 0.8 + 1.8 * _rows(table)),
        paint=paint,
    )


def losses(finding: Finding) -> Drawing:
    """The held-out loss over the steps with its interval; a panel per schedule."""
    table = finding.tables["curves"]
    backends = list(dict.fromkeys(table["backend"]))

    def paint(canvas: Canvas, theme: Theme) -> None:
        panels = _panels(canvas, table)
        for panel, (_, rows) in zip(panels, grouped(table, "schedule"), strict=False):
            for mode in _modes(rows):
                of_mode = rows[
                    (rows["mode"] == mode) & (rows["backend"] == backends[0])
                ]
                band = of_mode["low"], of_mode["high"]
                colour = theme.methods[mode]
                panel.fill_between(
                    of_mode["step"], *band, color=colour, alpha=0.2, lw=0
                )
                _line(panel, theme, mode, of_mode["step"], of_mode["median"])
        _legend(canvas, theme, _modes(table))
        log_axis(panels[0], "y")
        for panel in panels[::COLUMNS]:
            panel.set_ylabel("held-out loss (nats)")

    return Drawing(
        "losses",
        "The same budget under every schedule: held-out loss over the steps",
        alt="Held-out loss over the steps for each schedule, strict and default. "
        f"{finding.answer}",
        caption=f"Median over seeds on {backends[0]}, the 95% interval as a band.",
        data=table,
        size=(WIDTH, 0.8 + 1.8 * _rows(table)),
        paint=paint,
    )


def ends(finding: Finding) -> Drawing:
    """The final loss on every backend, strict and default; a line per schedule."""
    table = finding.tables["losses"]
    names = list(dict.fromkeys(table["schedule"]))
    backends = list(dict.fromkeys(table["backend"]))

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        for _, row in table.iterrows():
            mode, backend = str(row["mode"]), str(row["backend"])
            offset = 0.18 * (1 if mode == "strict" else -1) + 0.12 * backends.index(
                backend
            )
            place = names.index(row["schedule"]) + offset - 0.06
            colour = theme.methods[mode]
            axes.plot([row["low"], row["high"]], [place] * 2, color=colour, lw=1.4)
            style = marker(backend, backends, colour)
            axes.plot(row["loss"], place, **style)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel("held-out loss at the end (nats)")
        axes.grid(visible=False, axis="y")
        _legend(canvas, theme, _modes(table), backends)

    return Drawing(
        "ends",
        _spread(table),
        alt="Held-out loss at the end for each schedule, mode and backend, with "
        f"intervals. {finding.answer}",
        caption="Median over seeds with its 95% interval; a backend's marker is "
        "filled for the first one only.",
        data=table,
        size=(WIDTH, 1.4 + 0.35 * len(names)),
        paint=paint,
    )


def _spread(table: pd.DataFrame) -> str:
    """Quote the losses of the best and the worst schedule on the first backend."""
    rows = table[table["backend"] == table["backend"].iloc[0]].sort_values("loss")
    best, worst = rows.iloc[0], rows.iloc[-1]
    return (
        f"Losses end between {best['loss']:.2f} ({best['schedule']}) and "
        f"{worst['loss']:.2f} ({worst['schedule']}, {worst['mode']})"
    )


def _panels(canvas: Canvas, table: pd.DataFrame) -> list[Axes]:
    """Return one panel per schedule, in rows of four, with shared axes."""
    names = list(dict.fromkeys(table["schedule"]))
    grid = canvas.subplots(
        _rows(table), COLUMNS, sharex=True, sharey=True, squeeze=False
    )
    panels = list(grid.flat)
    for panel, name in zip(panels, names, strict=False):
        panel.set_title(name)
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    for panel in panels[-COLUMNS:]:
        panel.set_xlabel("step")
    return panels


def _rows(table: pd.DataFrame) -> int:
    """Return the number of rows of panels."""
    return -(-table["schedule"].nunique() // COLUMNS)


def _line(panel: Axes, theme: Theme, mode: str, x: Any, y: Any) -> None:
    """Draw a mode's line; strict is wide and dashed, to show equal lines."""
    colour, below = theme.methods[mode], 2 if mode == "default" else 3
    panel.plot(x, y, LINES[mode], color=colour, lw=WIDTHS[mode], zorder=below)


def _modes(table: pd.DataFrame) -> list[str]:
    """Return the modes of a table."""
    return [mode for mode in LINES if mode in set(table["mode"])]


def _legend(
    canvas: Canvas, theme: Theme, modes: Sequence[str], backends: Sequence[str] = ()
) -> None:
    """Draw a legend below the panels: modes by line, backends by marker."""
    handles = [
        Line2D([], [], color=theme.methods[m], ls=LINES[m], lw=WIDTHS[m], label=m)
        for m in modes
    ]
    handles += [
        Line2D([], [], label=backend, **marker(backend, backends, theme.ink))
        for backend in backends
    ]
    canvas.legend(handles=handles, loc="outside lower center", ncols=len(handles))
