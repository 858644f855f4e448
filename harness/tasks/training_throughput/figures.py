"""The figure of the experiment, drawn from a finding's tables."""

from __future__ import annotations

from collections.abc import Iterator

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

APART = 0.2
"""The distance of the points of two backends; lines are 1 apart."""


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figure; nothing without times."""
    table = finding.tables["rates"]
    if (table["seeds"] > 0).any():
        yield ratios(finding, table[table["seeds"] > 0])


def ratios(finding: Finding, table: pd.DataFrame) -> Drawing:
    """Wrapped over bare, and the control; a line per workload and precision."""
    lines = [f"{w}, {p}" for (w, p), _ in grouped(table, "workload", "precision")]
    backends = list(dict.fromkeys(table["backend"]))

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        axes.axvline(1, color=theme.ink, lw=1)
        for _, row in table.iterrows():
            shift = APART * (backends.index(row["backend"]) - (len(backends) - 1) / 2)
            place = lines.index(f"{row['workload']}, {row['precision']}") + shift
            _paint(axes, row, place, backends, theme)
        axes.set_yticks(range(len(lines)), lines)
        axes.set_ylim(len(lines) - 0.4, -0.6)
        log_axis(axes, "x")
        axes.set_xlabel("examples a second, over those of the bare step")
        axes.grid(visible=False, axis="y")
        canvas.legend(
            handles=_handles(backends, theme),
            loc="outside lower center",
            ncols=len(backends) + 1,
        )

    worst = table.sort_values("ratio", kind="stable").iloc[0]
    share = (
        f"{worst['ratio']:.0%} of the bare rate on {worst['workload']}, "
        f"{worst['precision']} ({worst['backend']})"
    )
    return Drawing(
        "ratios",
        f"At worst a wrapped step keeps {share}",
        alt="Examples a second of wrapped steps over those of bare ones, for each "
        f"workload, precision and backend. {finding.answer}",
        caption="Median over seeds with its 95% interval. Grey lines are the control: "
        "a bare step against a bare step.",
        data=table,
        size=(WIDTH, 1.3 + 0.5 * len(lines)),
        paint=paint,
    )


def _paint(
    axes: Axes, row: pd.Series, place: float, backends: list[str], theme: Theme
) -> None:
    control = [row["control_low"], row["control_high"]]
    axes.plot(control, [place] * 2, color=theme.faint, lw=4, alpha=0.5)
    color = theme.backends[row["backend"].split(" ")[0]]
    axes.plot([row["ratio_low"], row["ratio_high"]], [place] * 2, color=color)
    axes.plot(row["ratio"], place, **marker(row["backend"], backends, color))


def _handles(backends: list[str], theme: Theme) -> list[Line2D]:
    named = [
        Line2D(
            [],
            [],
            label=backend,
            **marker(backend, backends, theme.backends[backend.split(" ")[0]]),
        )
        for backend in backends
    ]
    label = "bare against bare"
    control = Line2D([], [], label=label, color=theme.faint, lw=4, alpha=0.5)
    return [*named, control]
