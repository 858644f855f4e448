"""The metrics, tables and figures of every experiment with workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas

from harness.figures.marks import grouped, legend, log_axis, looks, unique
from harness.figures.plot import Drawing
from harness.figures.style import PANEL, Theme
from harness.judgement.finding import Finding
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.cells import by_config, interval
from harness.tasks.worker_team.task import PERIODS

Queue: TypeAlias = Callable[[Record, int], tuple[float, Sequence[float]]]
"""Returns Z and S of :func:`throughput` for a run at a period."""

DDP = "DDP"


def expected(queue: Queue, record: Record, period: int) -> float:
    """Return the steps per second of all workers by mean value analysis."""
    return period * throughput(*queue(record, period), record.config["workers"])


def metrics(queue: Queue) -> dict[str, Metric]:
    """Return the comparisons within a run, for each period.

    They are NaN for runs that did not end well.
    """

    def over_ddp(period: int, record: Record) -> float:
        return _steps(record, period) / _steps(record, "ddp")

    def over_expected(period: int, record: Record) -> float:
        return _steps(record, period) / expected(queue, record, period)

    readers = {"DDP": over_ddp, "expected": over_expected}
    return {
        f"steps over {base}, period {period}": Metric(
            partial(read, period), "ratio", "larger"
        )
        for period in PERIODS
        for base, read in readers.items()
    }


def _steps(record: Record, mode: int | str) -> float:
    return float(record.summary.get(f"steps/{mode}", np.nan))


# -- the queueing model ----------------------------------------------------------------


def throughput(think: float, services: Sequence[float], customers: int) -> float:
    """Return the rounds per second of a closed queueing network.

    By mean value analysis:
    M. Reiser, S. Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing
    Networks", Journal of the ACM 27 (1980). In each round, each of N customers thinks
    for Z seconds and then visits every station k once. A station serves one customer
    after the other, in S_k seconds each. By recursion over the number of customers n,

        R_k(n) = S_k (1 + Q_k(n - 1)),  X(n) = n / (Z + sum R_k(n)),
        Q_k(n) = X(n) R_k(n)

    with the seconds R_k of a visit, the throughput X and the queues Q_k, which are 0 at
    n = 0. The means are exact for exponential services and any distribution of Z. With
    services that vary less, queues are shorter and X is higher.

    Args:
        think: Z, seconds between two rounds, >= 0.
        services: S, seconds at each station, >= 0.
        customers: N >= 1.
    """
    queues, rounds = [0.0] * len(services), 0.0
    for n in range(1, customers + 1):
        visits = [s * (1 + q) for s, q in zip(services, queues, strict=True)]
        rounds = n / (think + sum(visits))
        queues = [rounds * visit for visit in visits]
    return rounds


# -- tables ----------------------------------------------------------------------------


def modes(records: Sequence[Record], queue: Queue) -> pd.DataFrame:
    """Steps per second of all workers, a row per mode; medians over seeds.

    ``expected`` is computed from other values of the same run. The ratios
    ``over_expected`` and ``over_ddp`` are also computed within a run. Medians have
    intervals.
    """
    rows = []
    for group in by_config(records):
        labels = {"workers": group[0].config["workers"], "seeds": len(group)}
        of_ddp = [_steps(record, "ddp") for record in group]
        ddp = {"mode": DDP, "period": 1, **interval("steps", of_ddp)}
        rows.append({**labels, **ddp})
        for period in PERIODS:
            row: dict[str, Any] = {"mode": f"period {period}", "period": period}
            steps = np.array([_steps(record, period) for record in group])
            model = [expected(queue, record, period) for record in group]
            row |= interval("steps", steps) | interval("expected", model)
            row |= interval("over_expected", steps / model)
            row |= interval("over_ddp", steps / of_ddp)
            rows.append({**labels, **row})
    return pd.DataFrame(rows)


# -- figures ---------------------------------------------------------------------------


def draw_rates(finding: Finding, lines: str) -> Drawing:
    """Measured and expected steps per second over the number of workers."""
    table = finding.tables["steps"].sort_values("workers", kind="stable")
    workers = unique(table["workers"])
    last = table[table["workers"] == workers[-1]]

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes, styles = canvas.subplots(), looks(list(table["mode"]), theme)
        for (mode,), rows in grouped(table, "mode"):
            foreseen, color = (
                rows["expected"].fillna(rows["steps"]),
                styles[mode]["color"],
            )
            axes.plot(rows["workers"], foreseen, **styles[mode])
            axes.vlines(rows["workers"], rows["steps_low"], rows["steps_high"], color)
            axes.plot(rows["workers"], rows["steps"], "o", color=color, ms=4)
        log_axis(axes, "x", workers)
        log_axis(axes, "y")
        axes.set_xlabel("workers")
        axes.set_ylabel("local steps a second, all workers")
        legend(canvas, styles)

    row = last[last["period"] > 1].sort_values("period").iloc[0]
    who = f"{workers[-1]} workers reach" if workers[-1] > 1 else "one worker reaches"
    return Drawing(
        "rates",
        f"With a period of {row['period']}, {who} {row['over_ddp']:.1f} times as many "
        "steps per second as DDP",
        alt="Local steps a second of all workers over their number, with DDP and with "
        f"AGN at three periods. {finding.answer}",
        caption=f"Points: measured, median over runs with its 95% interval. {lines} "
        "Both axes are logarithmic.",
        data=table,
        size=(PANEL, 3.6),
        paint=paint,
    )
