"""The tables and figures of asynchronous workers, from records alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from harness.figures.marks import curves, log_axis, percent, unique
from harness.figures.plot import Drawing
from harness.figures.style import Theme
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.cells import by_config
from harness.tasks.checks import Check, all_hold

ARM = ("method", "workers", "period", "learning_rate")
"""The settings that name a row of the tables."""

WORST = {
    "accuracy": 0.0,
    "mean_accuracy": 0.0,
    "to_target": np.inf,
    "staleness": 0.0,
}
"""The numbers of a summary, with the values of a run that has none."""

NAMES = {
    "agn-delta": "AGN (delta)",
    "agn-gradient": "AGN (gradient)",
    "downpour": "DOWNPOUR",
    "dynsgd": "DynSGD",
    "easgd": "EASGD",
    "synchronous": "synchronous",
}
"""AGN (delta) is the one of its paper."""


def number(name: str, record: Record) -> float:
    """Return a value of a run's summary; the worst one if the run has none.

    A record has no infinity: a target that was never reached is read as NaN.
    """
    value = float(record.summary.get(name, math.nan))
    return WORST[name] if math.isnan(value) else value


METRICS = {
    "accuracy": Metric(partial(number, "accuracy"), "share", "larger"),
    "mean accuracy": Metric(partial(number, "mean_accuracy"), "share", "larger"),
}
"""The metrics by which runs are compared."""


def judge(records: Sequence[Record]) -> Judgement:
    table = ends(by_config(records))
    return Judgement({"ends": table}, checks(table))


def ends(groups: Sequence[Sequence[Record]]) -> pd.DataFrame:
    """The results of the runs: medians over the seeds, two of them with intervals.

    The final ``accuracy`` and the ``mean_accuracy`` over simulated time are shares of
    held-out images. ``to_target`` is the time to 90% accuracy in mean local steps,
    infinite if it was not reached. ``staleness`` counts pushes of others. ``best``
    marks the learning rate with the highest accuracy, if a method had several.
    """
    rows = []
    for group in groups:
        row = {name: group[0].config[name] for name in ARM} | {"seeds": len(group)}
        values = {name: [number(name, record) for record in group] for name in WORST}
        row |= {name: float(np.median(of)) for name, of in values.items()}
        for name in ("accuracy", "mean_accuracy"):
            row |= bootstrap(median, values[name]).named(name)
        rows.append(row)
    table = pd.DataFrame(rows)
    order = table.sort_values("accuracy", ascending=False, kind="stable")
    table["best"] = ~order.duplicated([*ARM[:-1]]).reindex(table.index)
    return table


def checks(ends: pd.DataFrame) -> list[Check]:
    """Return each check with whether it holds."""
    own, downpour, synchronous = (
        ends[ends["method"] == name]
        for name in ("agn-delta", "downpour", "synchronous")
    )
    every_step = own[own["period"] == 1].merge(
        downpour, on=ARM[1:], suffixes=("", "_downpour")
    )
    return [
        (
            "with a period of 1 AGN and DOWNPOUR are the same",
            all_hold(every_step["accuracy"] == every_step["accuracy_downpour"]),
        ),
        (
            "no push of a synchronous run is stale",
            all_hold(synchronous["staleness"] == 0),
        ),
        (
            "on average a push is stale by less than the number of workers",
            all_hold(ends["staleness"] < ends["workers"]),
        ),
    ]


def drawings(finding: Finding) -> Iterator[Drawing]:
    table = finding.tables["ends"]
    table = table[table["best"]]
    yield over(finding, table, "period", "workers")
    if table["workers"].nunique() > 1:
        yield over(finding, table, "workers", "period")


def title(table: pd.DataFrame) -> str:
    """Name the method with the best worst setting, and the one with the worst."""
    worst = table.groupby("method", sort=False)["accuracy"].min().sort_values()
    low, high = worst.index[0], worst.index[-1]
    return f"At its worst {NAMES[high]} reaches {worst[high]:.0%}" + (
        f", {NAMES[low]} {worst[low]:.0%}" if len(worst) > 1 else ""
    )


def over(finding: Finding, table: pd.DataFrame, x: str, other: str) -> Drawing:
    """Final accuracy over the period or the workers, with the most of the other."""
    most = table[other].max()
    rows = table[table[other] == most].sort_values(x, kind="stable")
    at = f"{most} workers" if other == "workers" else f"a period of {most}"
    what = "period: local steps between exchanges" if x == "period" else x

    def axis(panel: Axes) -> None:
        log_axis(panel, "x", sorted(set(rows[x])))
        panel.yaxis.set_major_formatter(percent())

    return curves(
        {"period": "periods"}.get(x, x),
        title(rows),
        rows,
        x,
        "accuracy",
        (what, "held-out accuracy at the end"),
        looks=lambda theme: {m: look(m, theme) for m in unique(rows["method"])},
        alt=f"Accuracy of the shared weights at the end over the {x}, with {at}, a "
        f"line a method. {finding.answer}",
        caption=f"With {at}, at the same learning rate or, where several were tried, "
        "each method at its best. Medians over seeds with 95% intervals.",
        axis=axis,
    )


def look(method: str, theme: Theme) -> dict[str, Any]:
    """Return how a method is drawn."""
    colors = {
        "agn-delta": theme.methods["default"],
        "agn-gradient": theme.methods["default"],
        "downpour": theme.methods["none"],
        "dynsgd": theme.methods["strict"],
        "easgd": theme.ink,
        "synchronous": theme.faint,
    }
    dashes = "--" if method == "agn-gradient" else "-"
    return {"color": colors[method], "ls": dashes, "label": NAMES[method]}
