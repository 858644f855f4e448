"""Held-out losses over the steps, for the smallest p."""

from __future__ import annotations

from itertools import product

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
    rarest,
)

__all__ = ["losses"]

TITLES = {
    "digit": "digit (nats)",
    "parity": "parity (nats)",
    "centre": "ink centre (variances)",
}
TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
HEADROOM = 2.0
"""The upper end of a visible band, relative to the first loss."""


def losses(finding: Finding) -> Drawing:
    """Median and band of the loss with and without the wrapper, optimizers by tasks."""
    curves = rarest(finding.tables["curves"])

    def paint(canvas: Canvas, theme: Theme) -> None:
        names, tasks = (list(dict.fromkeys(curves[c])) for c in ("optimizer", "task"))
        panels = canvas.subplots(
            len(names), len(tasks), sharex=True, sharey="col", squeeze=False
        )
        for (row, name), (column, task) in product(enumerate(names), enumerate(tasks)):
            panel = panels[row, column]
            here = (curves["optimizer"] == name) & (curves["task"] == task)
            _draw_curves(panel, curves[here], theme)
            if row == 0:
                panel.set_title(TITLES[task])
        for column, task in enumerate(tasks):
            of_task = curves[curves["task"] == task]
            log_axis(panels[0, column], "y", TICKS)
            top = HEADROOM * of_task[of_task["step"] == 0]["median"].max()
            panels[0, column].set_ylim(of_task["low"].min() / 1.2, top)
            panels[-1, column].set_xlabel("step")
        for row, name in enumerate(names):
            panels[row, 0].set_ylabel(f"{name}\nheld-out loss")
        legend(canvas, theme, curves["wrapper"], curves["backend"])

    return Drawing(
        "losses",
        _title(finding.tables["losses"]),
        alt=(
            "Held-out loss over the training steps for each optimizer and task, with "
            "zeros fed and with the wrapper."
        ),
        caption=(
            "Median over seeds, with the 95% interval as a band. Bands end at "
            f"{HEADROOM:g} times the first loss. The learning rate is the same with "
            "and without the wrapper. Longer steps can help a task that was rarely "
            "present, and hurt if only noise remains."
        ),
        data=curves,
        size=(WIDTH, 5.8),
        paint=paint,
    )


def _title(table: pd.DataFrame) -> str:
    if table.empty:
        return "Held-out losses over the training steps"
    last = rarest(table)
    last = last[last["backend"] == last["backend"].iloc[0]]
    lower, higher = (last["ratio_low"] > 1).sum(), (last["ratio_high"] < 1).sum()
    return (
        f"At p = {last['presence'].iloc[0]:g} losses end lower with the wrapper in "
        f"{lower} and higher in {higher} of {len(last)} cases"
    )


def _draw_curves(panel: Axes, curves: pd.DataFrame, theme: Theme) -> None:
    backends = list(dict.fromkeys(curves["backend"]))
    for (wrapper, backend), rows in grouped(curves, "wrapper", "backend"):
        colour, steps = theme.methods[wrapper], rows["step"]
        if backend == backends[0]:
            panel.fill_between(
                steps, rows["low"], rows["high"], color=colour, alpha=0.2, lw=0
            )
            panel.plot(steps, rows["median"], LINES[wrapper], color=colour)
        style = points(theme, wrapper, backend, backends) | {"ms": 3}
        panel.plot(steps, rows["median"], **style)
