"""The page on planning: real workers, measured on one machine and over slow links."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas

from harness.figures.plot import Drawing, draw_one
from harness.figures.style import WIDTH, Theme
from harness.pages.findings.page import Answered
from harness.pages.findings.sources import Figure
from harness.pages.markup.templating import render
from harness.tasks.worker_team.drawing import paint_rates

__all__ = ["ONE_MACHINE", "SLOW_LINK", "measured_inserts", "named", "picture"]

ONE_MACHINE, SLOW_LINK = "worker_throughput", "slow_link"

LINKS = {ONE_MACHINE: "one machine", SLOW_LINK: "slow links"}
"""Experiment -> the title of its panel."""

QUOTED = 10
"""The period that the figure's title quotes."""

MARGIN = 1.3
"""The factor by which the vertical axis extends beyond all points."""

NOT_MEASURED = "Not measured yet.\n"


def measured_inserts(folder: Path, experiments: Sequence[Answered]) -> dict[str, str]:
    """Return the inserts of both experiments; draw one figure of both."""
    one, slow = (named(experiments, name) for name in LINKS)
    inserts = {"planner_measured": _shown(one), "planner_slow": _shown(slow)}
    tables = {
        LINKS[each.question.name]: each.finding.tables["steps"]
        for each in (one, slow)
        if each is not None and each.finding is not None and each.finding.tables
    }
    if slow is not None and len(tables) == len(LINKS):
        figure = draw_one(_both(tables), folder)
        inserts["planner_slow"] = f"{slow.answer}\n\n{picture(figure, 'planner')}"
    return inserts


def named(experiments: Sequence[Answered], name: str) -> Answered | None:
    """Return an experiment by name, or None if it is missing."""
    return next((e for e in experiments if e.question.name == name), None)


def picture(figure: Figure, folder: str) -> str:
    """Return the insert that shows a figure with its caption."""
    return render("planner.md.jinja", figure=figure, folder=f"../generated/{folder}")


def _shown(measured: Answered | None) -> str:
    """Return an experiment's answer and its first figure."""
    if measured is None or not measured.figures:
        return NOT_MEASURED
    folder = f"experiments/{measured.question.name}"
    return f"{measured.answer}\n\n{picture(measured.figures[0], folder)}"


def _both(tables: dict[str, pd.DataFrame]) -> Drawing:
    """Steps per second over the worker counts that both have; a panel per link."""
    workers = set.intersection(*(set(table["workers"]) for table in tables.values()))
    data = pd.concat(
        table[table["workers"].isin(workers)].assign(link=link)
        for link, table in tables.items()
    )
    shown = data[["steps_low", "steps_high", "expected"]].stack()

    def paint(canvas: Canvas, theme: Theme) -> None:
        panels = np.atleast_1d(canvas.subplots(1, len(tables), sharey=True))
        # The positions of names depend on these limits.
        panels[0].set_ylim(shown.min() / MARGIN, shown.max() * MARGIN)
        for panel, link in zip(panels, tables, strict=True):
            paint_rates(panel, data[data["link"] == link], theme)
            panel.set_title(link)
        panels[0].set_ylabel("local steps a second, all workers")

    return Drawing(
        "links",
        _title(data),
        alt="Local steps a second of all workers over their number, with DDP and with "
        f"AGN at three periods, a panel for {' and one for '.join(tables)}.",
        caption="Points: measured, median over runs with its 95% interval. Lines "
        "through AGN's points, and on slow links through those of DDP: what the "
        "planner expects. All axes are logarithmic.",
        data=data,
        size=(WIDTH, 3.6),
        paint=paint,
    )


def _title(data: pd.DataFrame) -> str:
    """Return the title: steps relative to DDP with each kind of link."""
    most = data[data["workers"] == data["workers"].max()]
    rows = most[most["period"] == QUOTED].set_index("link")["over_ddp"]
    who = f"{most['workers'].iloc[0]} workers with a period of {QUOTED}"
    one, slow = (f"{rows[link]:.1f}" for link in LINKS.values())
    return f"{who}: {one} times the steps of DDP on one machine, {slow} on slow links"
