"""Inserts of the size of the code, and of the functions that a step enters."""

from __future__ import annotations

from pathlib import Path

from harness.layout.calls import Calls
from harness.layout.goals import COUNT_GOALS, STEP_GOALS
from harness.layout.report import Layout, read_layout
from harness.pages.markup.tables import Cell, table
from harness.pages.markup.templating import number, render

__all__ = ["COMMAND", "layout_inserts"]

COMMAND = ".venv/bin/nox -s layout"


def layout_inserts(results: Path) -> dict[str, str]:
    """Return the tables of counts and of steps; without counts, inserts say so."""
    layout = read_layout(results)
    if layout is None:
        nothing = render("not_measured.md.jinja", command=COMMAND)
        return dict.fromkeys(("layout_counts", "layout_steps"), nothing)
    return {"layout_counts": _counts(layout), "layout_steps": _steps(layout)}


def _counts(layout: Layout) -> str:
    parts = list(dict.fromkeys(part for of in layout.counts.values() for part in of))
    rows: list[list[Cell | str]] = [
        [name, *map(_number, [*map(of.get, parts), COUNT_GOALS.get(name)])]
        for name, of in layout.counts.items()
    ]
    columns = ["Count", *(f"{part}/" for part in parts), "Goal of impls/"]
    return table("Size of the code, tests left out", columns, rows)


def _steps(layout: Layout) -> str:
    backends = list(dict.fromkeys(b for of in layout.steps.values() for b in of))
    rows: list[list[Cell | str]] = [
        [name, *(_way(of.get(backend)) for backend in backends), _goal(name)]
        for name, of in layout.steps.items()
    ]
    caption = "Functions of Lockstep that a step enters / files / changes of file"
    return table(caption, ["Step", *backends, "Goal: files / changes"], rows)


def _number(value: int | None) -> Cell:
    return Cell("–") if value is None else Cell(number(value), float(value))


def _goal(step: str) -> Cell:
    goals = STEP_GOALS.get(step, {})
    return Cell(
        ", ".join(f"{backend} {goal}" for backend, goal in goals.items()) or "–"
    )


def _way(calls: Calls | None) -> Cell:
    if calls is None:
        return Cell("–")
    return Cell(" / ".join(number(value) for value in calls), float(calls.changes))
