"""The data of the interactive charts, for ``docs/assets/charts.js``.

A chart shows the same rows as the figure above it. Without JavaScript, only the figure
is shown. Rows with the same ``panels`` values are drawn in one panel, and rows with the
same ``series`` values are one line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup
from pandas.api.types import is_numeric_dtype

from harness.figures.tables import grouped


@dataclass(frozen=True)
class Chart:
    """The columns of a figure's data that a chart shows.

    Attributes:
        x: column of the horizontal axis, and its title.
        y: column of the vertical axis, and its title.
        band: columns of the lower and the upper end of the interval, if there is one.
        names: value in the data -> the text that is shown for it.
    """

    x: tuple[str, str]
    y: tuple[str, str]
    panels: Sequence[str]
    series: Sequence[str]
    band: tuple[str, str] | None = None
    names: Mapping[str, str] | None = None

    @property
    def columns(self) -> set[str]:
        """The columns that the data must have."""
        return {self.x[0], self.y[0], *self.panels, *self.series, *(self.band or ())}


CHARTS: Mapping[tuple[str, str], Chart] = {
    ("asynchronous_workers", "curves"): Chart(
        x=("seconds", "time (mean local steps)"),
        y=("median", "held-out accuracy"),
        panels=["period"],
        series=["method"],
        band=("low", "high"),
    ),
    ("absent_tasks", "losses"): Chart(
        x=("step", "step"),
        y=("median", "held-out loss"),
        panels=["optimizer", "task"],
        series=["wrapper", "backend"],
        band=("low", "high"),
        names={"none": "without the wrapper", "default": "with the wrapper"},
    ),
    ("mixed_precision", "losses"): Chart(
        x=("step", "step"),
        y=("loss", "held-out loss"),
        panels=["backend"],
        series=["method"],
        band=("loss_low", "loss_high"),
    ),
}
"""Experiment and figure -> the chart."""


def chart_of(experiment: str, figure: str, folder: Path) -> Markup | None:
    """Return the HTML element of a chart, or None for a figure without a chart."""
    chart, path = CHARTS.get((experiment, figure)), folder / f"{figure}.csv"
    if chart is None or not path.exists():
        return None
    data = pd.read_csv(path, keep_default_na=False, na_values=[""])
    if not chart.columns <= set(data.columns) or data.empty:
        return None
    text = json.dumps(_content(chart, data), ensure_ascii=False, allow_nan=False)
    # Escaped, so that no text can close the element.
    safe = text.replace("<", "\\u003c").replace("&", "\\u0026")
    script = f'<script type="application/json">{safe}</script>'
    return Markup(f'<div class="ls-chart" hidden>{script}</div>')


def _content(chart: Chart, data: pd.DataFrame) -> dict[str, Any]:
    return {
        "x": chart.x[1],
        "y": chart.y[1],
        "panels": [
            {
                "name": _name(chart, rows, chart.panels, key),
                "series": _series(chart, rows),
            }
            for key, rows in grouped(data, *chart.panels)
        ],
    }


def _series(chart: Chart, rows: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            "name": _name(chart, rows, chart.series, key),
            "x": _numbers(line[chart.x[0]]),
            "y": _numbers(line[chart.y[0]]),
            **{
                end: _numbers(line[column])
                for end, column in zip(("low", "high"), chart.band or (), strict=False)
            },
        }
        for key, line in grouped(rows, *chart.series)
    ]


def _name(
    chart: Chart, rows: pd.DataFrame, columns: Sequence[str], key: Sequence[str]
) -> str:
    """Return a name: numbers with their column, texts as in the chart's ``names``."""
    names = chart.names or {}
    return ", ".join(
        f"{column} {value}"
        if is_numeric_dtype(rows[column])
        else names.get(value, value)
        for column, value in zip(columns, key, strict=True)
    )


def _numbers(column: pd.Series) -> list[float | str | None]:
    """Return numbers as JSON can store them: infinities as text, NaN as None."""
    return [_number(float(value)) for value in column]


def _number(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
