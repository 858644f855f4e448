"""Accuracy against seconds of workers in processes, from records alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from harness.figures.marks import curves, grouped, log_axis, percent, unique
from harness.figures.plot import Drawing
from harness.figures.style import Theme
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.cells import by_config
from harness.tasks.worker_processes.task import LOOPBACK, SLOW_LINK, TARGET

WORST = {"accuracy": 0.0, "mean_accuracy": 0.0, "to_target": np.inf, "steps": 0.0}
"""The numbers of a summary, with the values of a run that has none."""

NAMES = {
    "agn": "AGN",
    "easgd": "EASGD",
    "ddp": "DDP",
}

PLACES = {LOOPBACK: "On loopback", SLOW_LINK: "On slow links"}

POINTS = 60
"""The times at which the accuracy is drawn."""


def number(name: str, record: Record) -> float:
    """Return a value of a run's summary; the worst one if the run has none.

    A record has no infinity: a target that was never reached is read as NaN.
    """
    value = float(record.summary.get(name, math.nan))
    return WORST[name] if math.isnan(value) else value


METRICS = {
    "accuracy": Metric(partial(number, "accuracy"), "share", "larger"),
    "mean accuracy": Metric(partial(number, "mean_accuracy"), "share", "larger"),
    "seconds to target": Metric(partial(number, "to_target"), "s", "smaller"),
    "steps a second": Metric(partial(number, "steps"), "1/s", "larger"),
}
"""The metrics by which runs are compared."""


def judge(records: Sequence[Record]) -> Judgement:
    groups = by_config(records)
    return Judgement({"ends": ends(groups), "curves": over_time(groups)})


def labels(group: Sequence[Record]) -> dict[str, Any]:
    """Return the columns that name the runs of a group."""
    config = group[0].config
    names = ("method", "link", "workers", "period", "learning_rate")
    return {**{name: config[name] for name in names}, "seeds": len(group)}


def ends(groups: Sequence[Sequence[Record]]) -> pd.DataFrame:
    """The results: medians over the seeds, with intervals if all are finite.

    ``accuracy`` is the final share of held-out images, ``mean_accuracy`` that over the
    seconds, ``to_target`` the seconds until 95% (infinite if it was not reached),
    ``steps`` the local steps a second of all workers.
    """
    rows = []
    for group in groups:
        row = labels(group)
        for name in WORST:
            values = [number(name, record) for record in group]
            row[name] = float(np.median(values))
            if np.isfinite(values).all():
                row |= bootstrap(median, values).named(name)
        rows.append(row)
    return pd.DataFrame(rows)


def over_time(groups: Sequence[Sequence[Record]]) -> pd.DataFrame:
    """The accuracy over the seconds: medians over the seeds with intervals.

    The accuracy of a run holds until its next measurement.
    """
    rows = []
    for group in groups:
        last = group[0].config["seconds"]
        for second in np.geomspace(last / POINTS, last, POINTS):
            known = [_accuracy(record, second) for record in group]
            row = {**labels(group), "second": second}
            rows.append(row | bootstrap(median, known).named("accuracy"))
    return pd.DataFrame(rows)


def _accuracy(record: Record, second: float) -> float:
    """Return the last accuracy before a second; the first one is at 0 s."""
    past = int(np.searchsorted(record.series["seconds"], second, "right"))
    return float(record.series["accuracy"][past - 1])


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the accuracy over seconds for each link."""
    curve, end = finding.tables["curves"], finding.tables["ends"]
    for (link,), rows in grouped(curve, "link"):
        yield draw(link, rows, message(link, end[end["link"] == link]))


def draw(link: str, rows: pd.DataFrame, title: str) -> Drawing:
    """The accuracy of each method over seconds."""
    methods = unique(rows["method"])
    return curves(
        link.replace(" ", "_"),
        title,
        rows,
        "second",
        "accuracy",
        ("seconds of training", "held-out accuracy"),
        looks=lambda theme: {method: look(method, theme) for method in methods},
        alt=f"Accuracy over seconds, {PLACES[link].lower()}; each method has a line.",
        caption=f"{PLACES[link]}, {rows['workers'].iloc[0]} processes, each method at "
        "its best learning rate. Medians over seeds with 95% intervals.",
        axis=axis,
    )


def axis(panel: Axes) -> None:
    log_axis(panel, "x")
    panel.yaxis.set_major_formatter(percent())


def message(link: str, end: pd.DataFrame) -> str:
    """Say when each method reaches the target."""
    order = end.sort_values("to_target", kind="stable")
    times = [
        f"{NAMES[row['method']]} after {row['to_target']:.1f}\u00a0s"
        if np.isfinite(row["to_target"])
        else f"{NAMES[row['method']]} never"
        for row in order.to_dict("records")
    ]
    return f"{PLACES[link]} they reach {TARGET:.0%}: {', '.join(times)}"


def look(method: str, theme: Theme) -> dict[str, Any]:
    """Return how a method is drawn."""
    colors = {
        "agn": theme.methods["default"],
        "easgd": theme.methods["none"],
        "ddp": theme.ink,
    }
    return {"color": colors[method], "label": NAMES[method]}
