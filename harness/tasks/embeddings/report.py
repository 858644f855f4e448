"""Tables and figures of runs with embeddings, from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure as Canvas

from harness.figures.axes import log_axis
from harness.figures.marks import Look, legend, line, unique
from harness.figures.plot import Paint
from harness.figures.style import THIN, Theme, marker
from harness.figures.tables import grouped
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Floats, bootstrap, median, paired_effects, relative_gap
from harness.tasks import cells
from harness.tasks.cells import same_seeds

Cell: TypeAlias = cells.Cell[Any]
"""Runs that differ in their seed; the labels include ``optimizer`` and ``limit``."""

RANKS = ("mrr", "mrr/validation", "hits", "ndcg", "recall")
"""The series in which larger values are better."""

NAMES = {
    "none": "no limit",
    "clip": "clipped after the step",
    "lookup": "normalized in the lookup",
    "normalise": "normalized before the step",
    "penalty": "L2 penalty",
}
LINES = {"none": "-", "clip": "--", "lookup": ":", "normalise": ":", "penalty": "-."}
METHODS = {
    "none": "none",
    "clip": "default",
    "lookup": "strict",
    "normalise": "strict",
}
"""Limit -> the theme's method with its color; ``clip`` is our wrapper."""


def last(name: str, unit: str) -> Metric:
    """Return the metric that reads a series at the end of training.

    If a run diverged, ranks are 0 and all other values are infinite.
    """

    def read(record: Record) -> float:
        return record.series[name][-1] if record.status == "ok" else _worst(name)

    return Metric(read, unit, "larger" if name in RANKS else "smaller")


def _worst(name: str) -> float:
    return 0.0 if name in RANKS else np.inf


def measured(cell: Cell, name: str) -> Floats:
    """Return a series of all runs, [seeds, checkpoints], at its worst after one ends.

    After a run diverged, its ranks are 0 and all other values are infinite.
    """
    return cell.column(name, _worst(name))


def differences(
    of: Sequence[Cell], names: Sequence[str], against: str = "none"
) -> pd.DataFrame:
    """Return the effect of each limit at the end of training.

    ``estimate`` = median over seeds of (this limit - ``against``), paired by seed, with
    its interval; ``what`` is the series.
    """
    rows = []
    for (mine, other), name in product(_paired(of, against), names):
        a, b = (measured(cell, name)[:, -1] for cell in (mine, other))
        interval = bootstrap(median, paired_effects(a, b, "difference"))
        rows.append({**mine.labels, "what": name, **interval.columns("estimate")})
    columns = [*of[0].labels, "what", "estimate", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def _paired(of: Sequence[Cell], against: str) -> Iterator[tuple[Cell, Cell]]:
    """Pair the cells of all limits with those of ``against``, by seed.

    The learning rate is no label, so the cells of a pair may have different ones.
    """
    limits = list(dict.fromkeys(cell.labels["limit"] for cell in of))
    for limit, a, b in product(limits, of, of):
        alike = {**a.labels, "limit": against} == b.labels
        if a.labels["limit"] == limit != against and alike:
            yield from same_seeds(a, b)


def curves(of: Sequence[Cell], names: Sequence[str]) -> pd.DataFrame:
    """Return series over the steps: the median over the seeds with its interval."""
    frames = []
    for cell, name in product(of, names):
        interval = bootstrap(median, measured(cell, name))
        labels = {**cell.labels, "what": name, "step": cell.settings.measured_at}
        frames.append(pd.DataFrame({**labels, **interval.columns("median")}))
    return pd.concat(frames, ignore_index=True)


def backends(of: Sequence[Cell], name: str) -> pd.DataFrame:
    """Return the difference of two backends on the same seeds, over the steps.

    ``median`` and ``highest`` over the seeds of |a - b| / max(|a|, |b|); ``against`` is
    the backend that ``backend`` is compared with, the one of the first cell.
    """
    frames = []
    for a, b in product(of, of):
        if not a.backend == of[0].backend != b.backend or a.settings != b.settings:
            continue
        for first, other in same_seeds(a, b):
            gaps = relative_gap(measured(first, name), measured(other, name))
            labels = {**other.labels, "against": first.backend, "what": name}
            labels["step"] = first.settings.measured_at
            numbers = {"median": np.median(gaps, axis=0), "highest": gaps.max(axis=0)}
            frames.append(pd.DataFrame({**labels, **numbers}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def quoted(values: npt.ArrayLike, digits: str = ".2f") -> str:
    """Return a range of numbers as text: ``0.16 to 0.21``, or ``0.16`` if all agree.

    Empty without numbers, so that a sentence can be left out.
    """
    numbers = np.asarray(values, float)
    if not numbers.size:
        return ""
    low, high = format(numbers.min(), digits), format(numbers.max(), digits)
    return low if low == high else f"{low} to {high}"


def color(theme: Theme, limit: str) -> str:
    """Return the color of a limit."""
    return theme.methods[METHODS[limit]] if limit in METHODS else theme.ink


def limit_looks(limits: pd.Series, theme: Theme, dashes: bool) -> dict[str, Look]:
    """Return the look of each limit for a legend, by its name."""
    return {
        NAMES[limit]: {
            "color": color(theme, limit),
            "ls": LINES[limit] if dashes else "-",
        }
        for limit in unique(limits)
    }


def paint_curves(
    table: pd.DataFrame,
    column: str,
    titles: Mapping[str, str],
    label: str,
    level: tuple[str, Mapping[str, float]] = ("", {}),
    ticks: Sequence[float] = (),
) -> Paint:
    """Paint medians over the steps, with bands; other backends than the first as marks.

    Args:
        table: rows of :func:`curves`. There is a row of panels for each optimizer.
        column, titles: values of this column -> the title of their column of panels.
        label: of the vertical axes; empty if columns have scales of their own.
        level: the name of a thin line, and its height for each value of the column.
        ticks: of a logarithmic vertical axis.
    """
    names, backends = unique(table["optimizer"]), unique(table["backend"])
    text, heights = level

    def paint(canvas: Canvas, theme: Theme) -> None:
        share: Any = "row" if label else "col"
        shape = len(names), len(titles)
        axes = canvas.subplots(*shape, sharex=True, sharey=share, squeeze=False)
        for panels, name in zip(axes, names, strict=True):
            panels[0].set_ylabel(f"{name}\n{label}".strip())
            for panel, value in zip(panels, titles, strict=True):
                here = (table["optimizer"] == name) & (table[column] == value)
                _paint_limits(panel, table[here], backends, theme)
                if value in heights:
                    panel.axhline(heights[value], color=theme.ink, lw=THIN)
            if ticks:
                log_axis(panels[0], "y", ticks)
        for top, bottom, title in zip(axes[0], axes[-1], titles.values(), strict=True):
            top.set_title(title)
            bottom.set_xlabel("step")
        handles = limit_looks(table["limit"], theme, dashes=True)
        for backend in backends[1:]:
            look = marker(backend, backends, theme.ink)
            handles[f"{backend} (lines: {backends[0]})"] = look
        if heights:
            handles[text] = {"color": theme.ink, "lw": THIN}
        legend(canvas, handles)

    return paint


def _paint_limits(
    panel: Any, rows: pd.DataFrame, backends: Sequence[str], theme: Theme
) -> None:
    for (limit, backend), curve in grouped(rows, "limit", "backend"):
        ink = color(theme, limit)
        if backend == backends[0]:
            line(panel, curve, "step", "median", color=ink, ls=LINES[limit])
        else:
            look = marker(backend, backends, ink)
            panel.plot(curve["step"], curve["median"], **look)
