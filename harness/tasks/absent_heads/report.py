"""Tables and figures of arms with absent heads, from records alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from harness.figures.marks import (
    curves,
    dots,
    first_backend,
    grouped,
    log_axis,
    unique,
)
from harness.figures.plot import Drawing
from harness.records.record import Record
from harness.statistics import Floats
from harness.tasks.absent_heads.training import WRAPPED
from harness.tasks.cells import Cell, paired, ratio

Read: TypeAlias = Callable[[Record], float]
"""Reads a value of a run, such as its loss."""

RATIO = ("ratio", "ratio_low", "ratio_high")
COMPARISON = ("zeros", "arm", *RATIO, "zeros_rate", "arm_rate", "seeds")
"""The columns, also of a table without rows."""

NAMES = {
    "none": "zeros fed",
    "mean": "zeros fed, mean loss",
    "default": "with wrapper",
    "strict": "strict wrapper",
}
LINES = {"none": "-", "mean": "-.", "default": "--", "strict": ":"}

NAME, RATE = "optimizer.name", "optimizer.learning_rate"
"""Columns of a table of choices."""

TICKS = ([0.8, 0.9, 1, 1.1, 1.25], [0.5, 0.7, 1, 1.5, 2], [0.1, 0.3, 1, 3, 10])
"""Ticks of a ratio around 1, from narrow to wide axes."""

HEADROOM = 8.0
"""The upper end of a sweep's axis, relative to the best value of its row."""


def against_zeros(of: Sequence[Cell]) -> Iterator[tuple[Cell, Cell]]:
    """Pair the cells with zeros with the other arms, by seed.

    The cells of a pair differ in the wrapper and, if each arm has its own rate, in the
    learning rate.
    """
    for fed, other in product(of, of):
        if fed.settings.wrapper != "none" or other.settings.wrapper == "none":
            continue
        optimizer = {**fed.settings.optimizer, "learning_rate": rate_of(other)}
        arm = {"wrapper": other.settings.wrapper, "optimizer": optimizer}
        alike = replace(fed.settings, **arm) == other.settings
        pair = paired(fed, other)
        if fed.backend == other.backend and alike and pair[0].records:
            yield pair


def rate_of(cell: Cell) -> float:
    return float(cell.settings.optimizer["learning_rate"])


def gained(record: Record, kind: str, heads: Sequence[str]) -> float:
    """Return the growth of a series of heads in the second half of training."""
    last = int(record.config["checkpoints"])
    columns = [record.series[f"{kind}/{head}"] for head in heads]
    return sum(column[last] - column[last // 2] for column in columns)


def movement(record: Record, heads: Sequence[str]) -> float:
    """Return the path of heads per informative step in the second half of training.

    NaN without such a step.
    """
    if record.status != "ok":
        return np.inf
    steps = gained(record, "informative", heads)
    return gained(record, "path", heads) / steps if steps else np.nan


def relative_movement(record: Record, heads: Sequence[str]) -> float:
    """Return the movement of heads in units of the arm's learning rate."""
    return movement(record, heads) / float(record.config["optimizer"]["learning_rate"])


def comparison(of: Sequence[Cell], read: Read) -> pd.DataFrame:
    """Compare every arm with the one with zeros, paired by seed.

    ``zeros`` and ``arm`` are medians over the seeds, at the learning rates
    ``zeros_rate`` and ``arm_rate``. ``ratio`` = zeros / arm, the median with its
    interval. The value of a run that diverged is infinite.
    """
    rows = []
    for fed, other in against_zeros(of):
        one, two = numbers(fed, read), numbers(other, read)
        row = {
            **other.labels,
            "zeros": np.median(one),
            "arm": np.median(two),
            **ratio("ratio", one, two),
            "zeros_rate": rate_of(fed),
            "arm_rate": rate_of(other),
            "seeds": len(one),
        }
        rows.append(row)
    names = list(of[0].labels) if of else []
    return pd.DataFrame(rows, columns=[*names, *COMPARISON])


def numbers(cell: Cell, read: Read) -> Floats:
    return np.array([read(record) for record in cell.records], float)


def draw_sweeps(table: pd.DataFrame, metric: str, unit: str) -> Iterator[Drawing]:
    """The metric over the learning rate with the rarest tasks; one an optimizer."""
    if "presence" in table:
        table = table[table["presence"] == table["presence"].min()]
    for (name,), rows in grouped(table, NAME):
        low, top = rows[metric].min() / 1.15, HEADROOM * rows[metric].min()
        chosen = rows[rows["chosen"].astype(bool)]
        best = [f"{r[RATE]:g} ({NAMES[r['wrapper']]})" for _, r in chosen.iterrows()]
        # Infinite values cannot be drawn, so the line leaves at the top.
        values = rows[metric].fillna(np.inf).clip(upper=100 * top)

        def axis(panel: Any, ends: tuple[float, float] = (low, top)) -> None:
            log_axis(panel, "x", [0.0001, 0.001, 0.01, 0.1, 1])
            log_axis(panel, "y")
            panel.set_ylim(*ends)

        yield curves(
            f"sweep_{name.lower()}",
            f"The best rates of {name}: {', '.join(best)}",
            rows.assign(method=rows["wrapper"], value=values, low=values, high=values),
            RATE,
            "value",
            ("learning rate", f"{metric} ({unit})"),
            looks=lambda theme: {
                arm: {"color": theme.hue(arm), "ls": LINES[arm], "label": NAMES[arm]}
                for arm in unique(table["wrapper"])
            },
            alt=f"The {metric} over the learning rate with {name}, a line an arm.",
            caption="Medians over the validation seeds, with the rarest tasks. Lines "
            f"leave at the top where the {metric} is over {HEADROOM:g} times the best, "
            "or runs diverged.",
            data=rows,
            axis=axis,
        )


def draw_comparison(table: pd.DataFrame, what: str, tuned: bool = True) -> Drawing:
    """The final value with zeros, relative to each other arm."""
    shown = first_backend(table)
    rare = shown["presence"] if "presence" in shown else None
    cases = shown["optimizer"]
    if rare is not None and rare.nunique() > 1:
        cases = cases + ", p = " + rare.map("{:g}".format)
    rows = shown[shown["wrapper"].isin(WRAPPED)]
    lower, higher = (rows["ratio_low"] > 1).sum(), (rows["ratio_high"] < 1).sum()
    rates = (
        "Each arm at its own best learning rate."
        if tuned
        else "All arms of an optimizer at the same learning rate, which was not tuned."
    )
    return dots(
        "comparison",
        f"{'Tuned' if tuned else 'At one rate'}, the wrapper ends with a lower {what} "
        f"in {lower} and a higher one in {higher} of {len(rows)} cases",
        shown.assign(case=cases, hue=shown["wrapper"]),
        "ratio",
        f"{what} with zeros / with the arm\nright of 1: lower than with zeros",
        hues=NAMES,
        alt=f"The {what} with zeros fed, divided by that of each other arm, paired by "
        "seed, a line a case.",
        caption=f"{rates} Medians over seeds with 95% intervals, on "
        f"{', '.join(unique(shown['backend']))}.",
        data=table,
        level=1,
        axis=lambda panel: ratio_axis(panel, shown),
    )


def ratio_axis(panel: Any, table: pd.DataFrame) -> None:
    """Make the x axis logarithmic around 1, with all finite ends of intervals."""
    ends = np.concatenate([table["ratio_low"], table["ratio_high"]])
    ends = ends[np.isfinite(ends) & (ends > 0)]
    furthest = float(np.exp(np.abs(np.log(ends)).max(initial=0.0)))
    ticks = next((t for t in TICKS if furthest <= t[-1]), TICKS[-1])
    log_axis(panel, "x", ticks, "×")
    panel.set_xlim(ticks[0], ticks[-1])
