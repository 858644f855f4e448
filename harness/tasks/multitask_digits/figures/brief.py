"""A small figure of one optimizer's movement, for the home page and the README."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from harness.figures.axes import log_axis, percent
from harness.figures.plot import Drawing
from harness.figures.style import Theme
from harness.figures.tables import grouped
from harness.judgement.finding import Finding
from harness.tasks.multitask_digits.figures.parts import LINES, rarest
from harness.tasks.multitask_digits.report import head_ratios

__all__ = ["beside", "brief"]

OPTIMIZER = "Adam"
LABELS = {"none": "without", "default": "with the wrapper"}


def brief(finding: Finding) -> Drawing:
    """Return the effect of absent tasks on Adam's updates, on the first backend.

    Raises:
        LookupError: the finding has no such rows.
    """
    movement, laws = finding.tables["movement"], finding.tables["laws"]
    backend = movement["backend"].iloc[0]
    measured = movement[movement["backend"] == backend]
    table, laws = (
        frame[(frame["optimizer"] == OPTIMIZER) & frame["wrapper"].isin(LABELS)]
        for frame in (measured, laws)
    )

    def paint(canvas: Canvas, theme: Theme) -> None:
        panel = canvas.subplots()
        for (wrapper,), rows in grouped(table, "wrapper"):
            law = laws[laws["wrapper"] == wrapper]
            _draw(panel, str(wrapper), rows, law, theme)
        presences = sorted(set(table["presence"]))
        log_axis(panel, "x", presences)
        log_axis(panel, "y", [1, 2, 5, 10], "×")
        panel.xaxis.set_major_formatter(percent())
        panel.set_xlim(presences[-1] * 1.2, presences[0] / 1.5)
        panel.set_xlabel("share of the batches that contain the task")
        panel.set_ylabel("size of an update\n(1 = task in every batch)")

    return Drawing(
        "absent_tasks",
        _title(table),
        alt=(
            "Size of Adam's updates of a weight with a constant gradient, against the "
            "share of the batches that contain its task. Without the wrapper it grows "
            "as the share falls, with the wrapper it hardly does."
        ),
        caption=(
            f"Points: measured on {backend}, with 95% intervals over seeds. "
            "Lines: what the update rule predicts."
        ),
        data=table,
        size=(4.6, 3.1),
        paint=paint,
    )


def beside(finding: Finding) -> str:
    """Return a sentence for the figure: real heads move by another factor."""
    moved = head_ratios(finding.tables["movement"]).get(OPTIMIZER)
    if not moved:
        return ""
    return (
        "The weight has a constant gradient. In a real network, the head of such a "
        f"rare task moves {moved['none']:.0f} times as far in each step with its task "
        "as the head of a task in every batch, and with the wrapper "
        f"{moved['default']:.0f} times."
    )


def _draw(
    panel: Axes, wrapper: str, rows: pd.DataFrame, law: pd.DataFrame, theme: Theme
) -> None:
    """Draw the law, the measured points, and the method's name beside them."""
    colour = theme.methods[wrapper]
    panel.plot(law["presence"], law["law"], LINES[wrapper], color=colour)
    errors = [rows["measured"] - rows["low"], rows["high"] - rows["measured"]]
    panel.errorbar(
        rows["presence"], rows["measured"], yerr=errors, fmt="o", ms=5, color=colour
    )
    middle = law.iloc[len(law) // 3]
    above = wrapper == "none"
    panel.annotate(
        LABELS[wrapper],
        (middle["presence"], middle["law"]),
        xytext=(-6, 4) if above else (14, -9),
        textcoords="offset points",
        ha="right" if above else "center",
        va="bottom" if above else "top",
        color=colour,
        weight="bold",
    )


def _title(table: pd.DataFrame) -> str:
    """Quote the size of an update for the rarest task."""
    rows = rarest(table).set_index("wrapper")
    without, wrapped = (float(rows["measured"][name]) for name in ("none", "default"))
    share = float(rows["presence"].iloc[0])
    return (
        f"Constant gradient, task in {100 * share:g}% of the batches: "
        f"{OPTIMIZER}'s updates are {without:.1f} times as large, "
        f"with the wrapper {wrapped:.1f} times"
    )
