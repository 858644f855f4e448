"""The figure of a task's optimizer state while the task is absent."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from harness.figures.axes import log_axis
from harness.figures.plot import Drawing
from harness.figures.style import WIDTH, Theme
from harness.figures.tables import grouped
from harness.judgement.finding import Finding
from harness.tasks.multitask_digits.figures.parts import (
    LINES,
    legend,
    points,
    row_of_panels,
)

__all__ = ["state"]


def state(finding: Finding) -> Drawing:
    """The norm of each slot over the steps of absence; a panel per slot."""
    table = finding.tables["state"]
    head = table[table["place"] == "head"]

    def paint(canvas: Canvas, theme: Theme) -> None:
        slots = list(dict.fromkeys(zip(head["optimizer"], head["slot"], strict=True)))
        titles = [f"{optimizer}\nslot {slot}" for optimizer, slot in slots]
        panels = row_of_panels(canvas, titles)
        for panel, (optimizer, slot) in zip(panels, slots, strict=True):
            here = (head["optimizer"] == optimizer) & (head["slot"] == slot)
            _draw_slot(panel, head[here], theme)
            panel.set_xlabel("steps absent")
        log_axis(panels[0], "y", [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1])
        panels[0].set_ylabel("norm of the slot\n(1 = at departure)")
        legend(canvas, theme, head["wrapper"], head["backend"])

    return Drawing(
        "state",
        _title(head),
        alt=(
            "Norm of the optimizer slots of an absent task against the steps of its "
            "absence: it falls geometrically when zeros are fed and stays at one with "
            "the wrapper."
        ),
        caption=(
            "Points: norm of a slot of the parity head, relative to the last step with "
            "its task; median over all runs. Lines: what the decay of the slot "
            "predicts without the wrapper, and 1 with it."
        ),
        data=table,
        size=(WIDTH, 3.3),
        paint=paint,
    )


def _title(head: pd.DataFrame) -> str:
    end = head[head["absent"] == head["absent"].max()]
    steps = end["absent"].iloc[0]
    fed, wrapped = (end[end["wrapper"] == wrapper] for wrapper in ("none", "default"))
    parts = []
    if len(fed):
        low, high = (100 * bound for bound in (fed["kept"].min(), fed["kept"].max()))
        left = f"{low:.2g}% to {high:.2g}%"
        parts.append(f"{steps} absent steps leave {left} of a slot")
    if len(wrapped):
        low = 100 * wrapped["lowest"].min()
        whole = "all" if (wrapped["lowest"] == 1).all() else f"{low:.2g}%"
        parts.append(f"with the wrapper {whole} of it")
    return "; ".join(parts) or f"What {steps} absent steps leave of a slot"


def _draw_slot(panel: Axes, rows: pd.DataFrame, theme: Theme) -> None:
    backends = list(dict.fromkeys(rows["backend"]))
    for (wrapper, backend), line in grouped(rows, "wrapper", "backend"):
        colour = theme.methods[wrapper]
        if backend == backends[0]:
            panel.plot(line["absent"], line["law"], LINES[wrapper], color=colour)
        panel.plot(
            line["absent"], line["kept"], **points(theme, wrapper, backend, backends)
        )
