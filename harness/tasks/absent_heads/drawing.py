"""The figures of arms with absent heads, drawn from the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from harness.figures.axes import log_axis, percent
from harness.figures.plot import Drawing
from harness.figures.style import THIN, WIDTH, Theme
from harness.figures.tables import first_backend, grouped
from harness.tasks.absent_heads.arms import MEAN, NONE, WRAPPED

__all__ = ["LINES", "NAMES", "comparison", "heads", "sweep"]

NAMES = {
    NONE: "zeros fed",
    MEAN: "zeros fed, mean loss",
    "default": "with wrapper",
    "strict": "strict wrapper",
}
NAME, RATE = "optimizer.name", "optimizer.learning_rate"
"""Columns of a table of choices."""

LINES = {NONE: "-", MEAN: "-.", "default": "--", "strict": ":"}
MARKERS = {NONE: "o", MEAN: "v", "default": "s", "strict": "D"}

TICKS = (
    [0.9, 0.95, 1, 1.05, 1.1],
    [0.8, 0.9, 1, 1.1, 1.25],
    [0.6, 0.8, 1, 1.2, 1.5],
    [0.5, 0.7, 1, 1.5, 2],
    [0.2, 0.5, 1, 2, 5],
    [0.1, 0.3, 1, 3, 10],
)
"""Ticks of a ratio around 1, from narrow to wide axes."""

HEADROOM = 8.0
"""The upper limit of a sweep's axis, relative to the best value of its row."""


def sweep(table: pd.DataFrame, metric: str, unit: str) -> Drawing:
    """The metric over the learning rate; a column per optimizer, a row per presence."""
    by = "presence" if "presence" in table.columns else None
    rows = sorted(set(table[by]), reverse=True) if by else [None]

    def paint(canvas: Canvas, theme: Theme) -> None:
        names = list(dict.fromkeys(table[NAME]))
        axes = canvas.subplots(
            len(rows), len(names), sharex=True, sharey="row", squeeze=False
        )
        for line, presence in zip(axes, rows, strict=True):
            of_row = table if by is None else table[table[by] == presence]
            top = HEADROOM * of_row[metric].min()
            for panel, name in zip(line, names, strict=True):
                _draw_sweep(panel, of_row[of_row[NAME] == name], metric, top, theme)
                log_axis(panel, "x", [0.0001, 0.001, 0.01, 0.1, 1])
                panel.set_xlim(table[RATE].min() / 1.4, table[RATE].max() * 1.4)
            log_axis(line[0], "y")
            line[0].set_ylim(of_row[metric].min() / 1.15, top)
            share = "" if presence is None else f"tasks present in {presence:.0%}\n"
            line[0].set_ylabel(f"{share}{metric} ({unit})")
        for panel, name in zip(axes[0], names, strict=True):
            panel.set_title(name)
        for panel in axes[-1]:
            panel.set_xlabel("learning rate")
        _legend(canvas, theme, list(dict.fromkeys(table["wrapper"])))

    return Drawing(
        "sweep",
        _title_of_sweep(table, metric),
        alt=(
            f"The {metric} over the learning rate, a panel an optimizer: with zeros "
            "fed, with the mean over present tasks, and with the wrapper."
        ),
        caption=(
            "Medians over the validation seeds; the large marker is the rate that was "
            f"chosen. Lines leave at the top where the {metric} is over {HEADROOM:g} "
            "times the best of the row, or runs diverged."
        ),
        data=table,
        size=(WIDTH, 1.2 + 2.0 * len(rows)),
        paint=paint,
    )


def _draw_sweep(
    panel: Axes, table: pd.DataFrame, metric: str, top: float, theme: Theme
) -> None:
    for (wrapper,), rows in grouped(table, "wrapper"):
        # Infinite values cannot be drawn, so the line leaves the panel at the top.
        values = np.minimum(rows[metric].fillna(np.inf), 100 * top)
        style = _style(wrapper, theme)
        panel.plot(rows[RATE], values, LINES[wrapper], ms=3, **style)
        best = rows["chosen"].astype(bool)
        panel.plot(rows[RATE][best], values[best], ms=8, **style)


def _title_of_sweep(table: pd.DataFrame, metric: str) -> str:
    """Quote the largest ratio of an optimizer's best rates, wrapper over zeros."""
    best = table[table["chosen"].astype(bool)]
    keys = [key for key in (NAME, "presence") if key in table.columns]
    fed, wrapped = best[best["wrapper"] == NONE], best[best["wrapper"].isin(WRAPPED)]
    pairs = wrapped.merge(fed, on=keys, suffixes=("", "_fed"))
    if pairs.empty:
        return f"The {metric} over the learning rate"
    ratios = (pairs[RATE] / pairs[f"{RATE}_fed"]).to_numpy(float)
    times, row = ratios.max(), pairs.iloc[int(ratios.argmax())]
    if times <= 1:
        return "No best learning rate is larger with the wrapper than with zeros"
    where = f" at p = {row['presence']:g}" if "presence" in keys else ""
    return (
        f"{row[NAME]}'s best rate{where} is {times:.2g} times as large with the wrapper"
    )


def comparison(table: pd.DataFrame, what: str) -> Drawing:
    """The final value with zeros, relative to each other arm; a line per case."""
    first = first_backend(table)
    keys = ["presence", "optimizer"] if "presence" in table.columns else ["optimizer"]
    cases = list(first.drop_duplicates(keys)[keys].itertuples(index=False, name=None))

    def paint(canvas: Canvas, theme: Theme) -> None:
        panel = canvas.subplots()
        panel.axvline(1, color=theme.ink, lw=THIN)
        arms = list(dict.fromkeys(first["wrapper"]))
        for (wrapper,), rows in grouped(first, "wrapper"):
            places = [cases.index(tuple(row)) for row in rows[keys].to_numpy()]
            apart = 0.22 * (arms.index(wrapper) - (len(arms) - 1) / 2)
            errors = [rows["ratio"] - rows["ratio_low"], rows["ratio_high"]]
            errors[1] = errors[1] - rows["ratio"]
            style = {**_style(wrapper, theme), "lw": 0, "elinewidth": 1.4, "ms": 5}
            panel.errorbar(rows["ratio"], np.add(places, apart), xerr=errors, **style)
        labels = [_case(keys, case) for case in cases]
        panel.set_yticks(range(len(cases)), labels)
        panel.set_ylim(len(cases) - 0.5, -0.5)
        panel.set_xscale("log")
        ticks = _ticks(first)
        log_axis(panel, "x", ticks, "×")
        panel.set_xlim(ticks[0], ticks[-1])
        panel.set_xlabel(
            f"{what} with zeros / with the arm\nright of 1: lower than zeros"
        )
        _legend(canvas, theme, arms)

    return Drawing(
        "comparison",
        _title_of_comparison(first, what),
        alt=(
            f"The {what} with zeros fed, divided by that of each other arm, paired by "
            "seed, a line a case."
        ),
        caption=(
            "Each arm at its own best learning rate. Medians over seeds with 95% "
            f"intervals, on {', '.join(dict.fromkeys(first['backend']))}."
        ),
        data=table,
        size=(WIDTH, 1.5 + 0.45 * len(cases)),
        paint=paint,
    )


def _title_of_comparison(table: pd.DataFrame, what: str) -> str:
    rows = table[table["wrapper"].isin(WRAPPED)]
    lower, higher = (rows["ratio_low"] > 1).sum(), (rows["ratio_high"] < 1).sum()
    return (
        f"Tuned, the wrapper ends with a lower {what} in {lower} and a "
        f"higher one in {higher} of {len(rows)} cases"
    )


def _case(keys: Sequence[str], case: tuple[Any, ...]) -> str:
    named = dict(zip(keys, case, strict=True))
    share = f", p = {named['presence']:g}" if "presence" in named else ""
    return f"{named['optimizer']}{share}"


def _ticks(table: pd.DataFrame) -> list[float]:
    """Return ticks around 1 that contain all finite ends of intervals."""
    ends = np.concatenate([table["ratio_low"], table["ratio_high"]])
    ends = ends[np.isfinite(ends) & (ends > 0)]
    furthest = float(np.exp(np.abs(np.log(ends)).max())) if len(ends) else 1.0
    return next((t for t in TICKS if furthest <= t[-1]), TICKS[-1])


def heads(table: pd.DataFrame, source: str) -> Drawing:
    """The movement of real heads and its law; a panel per optimizer."""
    shown = first_backend(table.dropna(subset=["ratio", "law"]))

    def paint(canvas: Canvas, theme: Theme) -> None:
        names = list(dict.fromkeys(shown["optimizer"]))
        axes = canvas.subplots(1, max(len(names), 1), sharey=True, squeeze=False)
        for panel, name in zip(axes[0], names, strict=False):
            rows = shown[shown["optimizer"] == name].sort_values("presence")
            _draw_heads(panel, rows, theme)
            panel.set_title(name)
            panel.set_xlabel("share of steps with the task")
        log_axis(axes[0, 0], "y", [0.5, 1, 2, 5, 10, 20], "×")
        axes[0, 0].set_ylabel("movement in learning rates,\nzeros / wrapper")
        law = Line2D([], [], color=theme.ink, label="law of a constant gradient")
        point = Line2D([], [], color=theme.methods[NONE], marker="o", lw=0)
        point.set_label("heads, measured")
        canvas.legend(handles=[point, law], loc="outside lower center", ncols=2)

    return Drawing(
        "heads",
        _title_of_heads(shown),
        alt=(
            "How many times as far a head moves per step of its task if it is fed "
            "zeros, over the share of steps that have the task; the law is a line."
        ),
        caption=(
            f"{source} Path of a head in learning rates per step that has its task, "
            "zeros over wrapper, each at its own best rate: medians over seeds with "
            "95% intervals."
        ),
        data=table,
        size=(WIDTH, 3.3),
        paint=paint,
    )


def _draw_heads(panel: Axes, rows: pd.DataFrame, theme: Theme) -> None:
    panel.plot(rows["presence"], rows["law"], color=theme.ink)
    low, high = rows["ratio"] - rows["ratio_low"], rows["ratio_high"] - rows["ratio"]
    color = theme.methods[NONE]
    panel.errorbar(
        rows["presence"],
        rows["ratio"],
        yerr=[low, high],
        fmt="o",
        ms=4,
        color=color,
        elinewidth=1,
    )
    log_axis(panel, "x", [0.02, 0.05, 0.1, 0.2, 0.5, 1])
    panel.xaxis.set_major_formatter(percent())
    panel.set_xlim(rows["presence"].min() / 1.3, rows["presence"].max() * 1.3)


def _title_of_heads(table: pd.DataFrame) -> str:
    """Quote the case whose measured ratio is furthest from the law."""
    if table.empty:
        return "Movement of real heads against the law"
    gaps = np.abs(np.log((table["ratio"] / table["law"]).to_numpy(float)))
    row = table.iloc[int(np.argmax(gaps))]
    return (
        f"{row['optimizer']}, {row['head']} in {row['presence']:.0%} of the steps: "
        f"zeros move a head {row['ratio']:.1f} times as far; the law has "
        f"{row['law']:.1f}"
    )


def _style(wrapper: str, theme: Theme) -> dict[str, Any]:
    return {"color": theme.methods[wrapper], "marker": MARKERS[wrapper]}


def _legend(canvas: Canvas, theme: Theme, wrappers: Sequence[str]) -> None:
    handles = [
        Line2D([], [], ls=LINES[w], label=NAMES[w], ms=4, **_style(w, theme))
        for w in NAMES
        if w in wrappers
    ]
    canvas.legend(handles=handles, loc="outside lower center", ncols=len(handles))
