"""Movement per informative step against the probability of presence."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from harness.figures.axes import log_axis
from harness.figures.plot import Drawing
from harness.figures.style import THIN, WIDTH, Theme
from harness.figures.tables import grouped
from harness.judgement.finding import Finding
from harness.tasks.multitask_digits.figures.parts import (
    LINES,
    METHODS,
    legend,
    points,
    rarest,
    row_of_panels,
)

__all__ = ["movement"]


def movement(finding: Finding) -> Drawing:
    """Measured movement and its laws; a panel per optimizer."""
    table, laws = finding.tables["movement"], finding.tables["laws"]

    def paint(canvas: Canvas, theme: Theme) -> None:
        names = list(dict.fromkeys(table["optimizer"]))
        panels = row_of_panels(canvas, names)
        for panel, name in zip(panels, names, strict=True):
            _draw_laws(panel, laws[laws["optimizer"] == name], theme)
            _draw_measured(panel, table[table["optimizer"] == name], theme)
            presences = sorted(set(table["presence"]))
            log_axis(panel, "x", presences)
            panel.set_xlim(presences[-1] * 1.25, presences[0] / 1.25)
            panel.set_xlabel("probability p of presence")
        log_axis(panels[0], "y", [0.5, 1, 2, 5, 10], "×")
        panels[0].set_ylabel("movement per informative step\n(1 = always present)")
        for worst in _worst(table):
            _label(panels[names.index(worst)], laws[laws["optimizer"] == worst], theme)
        limit = Line2D([], [], color=theme.ink, lw=THIN, label="law of long runs")
        legend(canvas, theme, table["wrapper"], table["backend"], [limit])

    return Drawing(
        "movement",
        _title(table),
        alt=(
            "Movement per informative step against the probability that a task is "
            "present, one panel an optimizer. The measured points lie on the laws."
        ),
        caption=(
            "A weight with a constant gradient: its movement in each step in which its "
            "task is present, relative to a task that is always present. Points: "
            "measured, with 95% intervals over seeds. Lines: what the update rule "
            "predicts for a run of this length; thin lines: for long runs."
        ),
        data=table,
        size=(WIDTH, 3.4),
        paint=paint,
    )


def _title(table: pd.DataFrame) -> str:
    """Quote the optimizer with the largest effect of zeros, and its values."""
    parts = []
    for worst in _worst(table):
        of = rarest(table[table["optimizer"] == worst]).sort_values("measured")
        fed, wrapped = (of[of["wrapper"] == name] for name in ("none", "default"))
        parts.append(
            f"Fed zeros, {worst} moves {fed['measured'].iloc[-1]:.1f} times as far at "
            f"p = {fed['presence'].iloc[-1]:g}"
        )
        if len(wrapped):
            parts.append(f"with the wrapper {wrapped['measured'].iloc[0]:.1f} times")
    return "; ".join(parts) or "Movement per informative step with the wrapper"


def _worst(table: pd.DataFrame) -> list[str]:
    """Return the optimizer with the largest effect of zeros; empty without zeros."""
    fed = rarest(table)
    fed = fed[fed["wrapper"] == "none"].sort_values("measured")
    return [str(name) for name in fed["optimizer"].iloc[-1:]]


def _draw_laws(panel: Axes, laws: pd.DataFrame, theme: Theme) -> None:
    for (wrapper,), rows in grouped(laws, "wrapper"):
        colour, line = theme.methods[wrapper], LINES[wrapper]
        panel.plot(rows["presence"], rows["limit"], line, color=colour, lw=THIN)
        panel.plot(rows["presence"], rows["law"], line, color=colour)


def _draw_measured(panel: Axes, rows: pd.DataFrame, theme: Theme) -> None:
    """Draw points with intervals; backends are shifted, so that all are visible."""
    backends = list(dict.fromkeys(rows["backend"]))
    for (wrapper, backend), cell in grouped(rows, "wrapper", "backend"):
        apart = 1.08 ** (backends.index(backend) - (len(backends) - 1) / 2)
        below, above = cell["measured"] - cell["low"], cell["high"] - cell["measured"]
        style = points(theme, wrapper, backend, backends) | {"elinewidth": 1}
        x = cell["presence"] * apart
        panel.errorbar(x, cell["measured"], yerr=[below, above], **style)


def _label(panel: Axes, laws: pd.DataFrame, theme: Theme) -> None:
    """Write the methods beside their lines, in the panel with distant lines."""
    for (wrapper,), rows in grouped(laws.dropna(subset=["law"]), "wrapper"):
        anchor = rows.iloc[len(rows) // 3]
        above = wrapper == "none"
        panel.annotate(
            METHODS[wrapper],
            (anchor["presence"], anchor["law"]),
            xytext=(-5, 5) if above else (4, -8),
            textcoords="offset points",
            ha="right" if above else "left",
            va="bottom" if above else "top",
            color=theme.methods[wrapper],
        )
