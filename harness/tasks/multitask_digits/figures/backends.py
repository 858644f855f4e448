"""The difference of two backends on the same seeds."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure as Canvas

from harness.figures.plot import Drawing
from harness.figures.style import THIN, WIDTH, Theme
from harness.figures.tables import grouped
from harness.judgement.finding import Finding
from harness.tasks.multitask_digits.figures.parts import (
    LINES,
    legend,
    row_of_panels,
)

__all__ = ["backends"]

FLOOR = 1e-8
"""The value at which a difference of 0 is drawn, below the resolution of float32."""


def backends(finding: Finding) -> Drawing:
    """The relative difference of the losses over the steps; a panel per optimizer."""
    table = finding.tables["backends"]

    def paint(canvas: Canvas, theme: Theme) -> None:
        names = list(dict.fromkeys(table["optimizer"]))
        panels = row_of_panels(canvas, names)
        for panel, name in zip(panels, names, strict=True):
            here = table[table["optimizer"] == name]
            for (wrapper,), rows in grouped(here, "wrapper"):
                steps = rows.groupby("step")[["median", "highest"]].max()
                steps = steps.clip(lower=FLOOR)
                colour, line = theme.methods[wrapper], LINES[wrapper]
                panel.plot(steps["median"], line, color=colour)
                panel.plot(steps["highest"], line, color=colour, lw=THIN)
            panel.set_xlabel("step")
        panels[0].set_yscale("log")
        panels[0].set_ylabel("relative difference\nof held-out losses")
        legend(canvas, theme, table["wrapper"])

    return Drawing(
        "backends",
        _title(table),
        alt=(
            "Relative difference of the held-out losses of two backends over the "
            "steps: rounding at first, amplified by training."
        ),
        caption=(
            "Thick lines: median over seeds and tasks, at the probability of presence "
            "with the largest median. Thin lines: the largest difference of all runs."
        ),
        data=table,
        size=(WIDTH, 3.2),
        paint=paint,
    )


def _title(table: pd.DataFrame) -> str:
    """Quote the difference of runs at the first and at the worst measurement."""
    steps = table[table["step"] > 0].groupby("step")["median"].max()
    pair = f"{table['against'].iloc[0]} and {table['backend'].iloc[0]}, same seeds"
    first = f"{steps.iloc[0]:.0e} at step {steps.index[0]}"
    return f"{pair}: median gap {first}, later up to {steps.max():.0e}"
