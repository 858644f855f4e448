"""The page on planning: a figure up to 1000 workers, a table, and a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from harness.figures.axes import log_axis
from harness.figures.plot import Drawing, draw_one
from harness.figures.style import WIDTH, Theme
from harness.figures.tables import grouped
from harness.pages.findings.page import Answered
from harness.pages.findings.planner_measured import (
    ONE_MACHINE,
    measured_inserts,
    named,
    picture,
)
from harness.pages.markup.tables import PAIRS, Cell, table
from harness.pages.markup.templating import number
from harness.simulator.planner import GAIN, PERIODS, Setting, describe_band

__all__ = ["DRAWN", "SETTINGS", "planner_inserts"]

GIGABIT = 1e9 / 8

SETTINGS: Mapping[str, Setting] = {
    "0.7 MB, 2 ms, 100 Mbit/s, 10 ms": Setting(2e-3, 0.7e6, GIGABIT / 10, 10e-3),
    "91 MB, 150 ms, 1 Gbit/s, 0.2 ms": Setting(0.15, 91e6, GIGABIT, 2e-4),
    "1.4 GB, 500 ms, 25 Gbit/s, 0.05 ms": Setting(0.5, 1.4e9, 25 * GIGABIT, 5e-5),
}
"""A small model on a slow network, a medium one in an office, a large one in a rack."""

DRAWN = list(SETTINGS)[1]

COLORS = {1: "none", 10: "default", 40: "strict"}
FORMATS = {1: ":", 10: "--", 40: "-."}

WORKERS = 8
"""The number of workers in the table."""

FEWEST, MOST = 2, 1000
"""The range of the number of workers in the figure."""

ALL_REDUCE = "all-reduce"


def planner_inserts(folder: Path, experiments: Sequence[Answered]) -> dict[str, str]:
    """Draw the figures into ``folder``; return the inserts: figures and a table.

    The center's own time per byte is as the experiment measured it for the large model.
    """
    folder.mkdir(parents=True, exist_ok=True)
    measured = named(experiments, ONE_MACHINE)
    per_byte = _center_seconds_per_byte(measured)
    settings = {
        name: replace(setting, center_seconds=setting.model_bytes * per_byte)
        for name, setting in SETTINGS.items()
    }
    figure = draw_one(_drawing(settings[DRAWN]), folder)
    return {
        "planner_figure": picture(figure, "planner"),
        "planner_table": f"{_table(settings)}\n",
        **measured_inserts(folder, experiments),
    }


def _center_seconds_per_byte(measured: Answered | None) -> float:
    """Return the center's time per byte, or 0 if it was not measured."""
    if measured is None or measured.finding is None or not measured.finding.tables:
        return 0.0
    large = measured.finding.tables["center"].iloc[-1]
    return float(1 / large["center"] / large["model_mb"] / 1e6)


# -- table -----------------------------------------------------------------------------


def _table(settings: Mapping[str, Setting]) -> str:
    rows = [
        _row(name, setting, period)
        for name, setting in settings.items()
        for period in PERIODS
    ]
    columns = [
        *("Model, step, link, latency", "Period", "Knee (workers)"),
        *("Steps a second", "Over all-reduce", f"{GAIN:g} times as many"),
    ]
    center = 1e9 * next(s.center_seconds / s.model_bytes for s in settings.values())
    caption = f"{WORKERS} workers; the center itself takes {center:.2g} ms for each MB"
    return table(caption, columns, rows, style=PAIRS)


def _row(name: str, setting: Setting, period: int) -> list[Cell | str]:
    plan = setting.row(period, WORKERS)
    ends = setting.bandwidths_of_gain(GAIN, period, WORKERS)
    return [
        name,
        Cell(str(period), float(period)),
        Cell(f"{plan['knee']:.2g}", plan["knee"]),
        _cell(plan["steps_per_second"]),
        _cell(plan["gain"]),
        Cell(describe_band(ends), ends[1] if ends else 0.0),
    ]


def _cell(value: float) -> Cell:
    return Cell(number(float(f"{value:.3g}")), float(value))


# -- figure ----------------------------------------------------------------------------


def _drawing(setting: Setting) -> Drawing:
    """Steps per second over the number of workers, per period and for all-reduce."""
    data = pd.DataFrame(_points(setting))
    most = data[data["workers"] == MOST].set_index("mode")["steps_per_second"]
    center, reduced = most.drop(ALL_REDUCE).max(), most[ALL_REDUCE]

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        for (mode,), rows in grouped(data, "mode"):
            _curve(axes, mode, rows, theme)
        _knees(axes, setting, theme)
        log_axis(axes, "x", [2, 10, 100, 1000])
        log_axis(axes, "y", [10.0**k for k in range(0, 5)])
        axes.set_xlim(FEWEST, MOST * 6)
        axes.set_xlabel("workers")
        axes.set_ylabel("local steps a second, all workers")

    return Drawing(
        "plan",
        _title(setting, PERIODS[-1]),
        alt="Local steps a second over the number of workers, one curve a period. Each "
        f"rises and then stays. With {MOST} workers they take {center:.0f} steps a "
        f"second at most, and {reduced:.0f} with an all-reduce.",
        caption=f"Model, step, link and latency: {DRAWN}. Both axes are logarithmic. A "
        "dot is the knee, where the asymptotes meet.",
        data=data,
        size=(WIDTH, 3.8),
        paint=paint,
    )


def _title(setting: Setting, period: int) -> str:
    """Return the title: from how many workers on a period no longer pays off."""
    full, crossing = setting.knee(period), _crossing(setting, period)
    title = f"With a period of {period}, {full:.0f} workers fill the center's link"
    return (
        f"{title}; from {crossing} on, an all-reduce is faster" if crossing else title
    )


def _crossing(setting: Setting, period: int) -> int | None:
    """Return the workers from which on all-reduce is faster, or None for never."""
    flows = setting.flows(period, MOST)
    faster = (
        flow.customers
        for flow in reversed(flows)
        if period * flow.throughput > setting.synchronous_steps(flow.customers)
    )
    last = next(faster, 0)
    return None if last == MOST else last + 1


def _points(setting: Setting) -> Iterable[dict[str, Any]]:
    shown = sorted({round(n) for n in np.geomspace(FEWEST, MOST, 61)})
    for period in PERIODS:
        flows = setting.flows(period, MOST)
        for n in shown:
            steps = period * flows[n - 1].throughput
            yield {"mode": f"period {period}", "workers": n, "steps_per_second": steps}
    for n in shown:
        steps = setting.synchronous_steps(n)
        yield {"mode": ALL_REDUCE, "workers": n, "steps_per_second": steps}


def _curve(axes: Axes, mode: str, rows: pd.DataFrame, theme: Theme) -> None:
    period = 0 if mode == ALL_REDUCE else int(mode.split()[1])
    color = theme.methods[COLORS[period]] if period else theme.ink
    style = FORMATS.get(period, "-")
    axes.plot(rows["workers"], rows["steps_per_second"], color=color, ls=style)
    end = rows.iloc[-1]
    look: dict[str, Any] = {"color": color, "va": "center", "fontsize": 9}
    place = (end["workers"], end["steps_per_second"])
    axes.annotate(mode, place, (5, 0), textcoords="offset points", **look)


def _knees(axes: Axes, setting: Setting, theme: Theme) -> None:
    for period in PERIODS:
        workers = setting.knee(period)
        steps = period / max(setting.services)
        axes.plot(workers, steps, "o", ms=4, color=theme.methods[COLORS[period]])
