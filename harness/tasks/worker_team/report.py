"""The metrics, tables and figures of every experiment with workers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

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
from harness.tasks.worker_team.task import FLOAT, PERIODS, weights_of

DDP = "DDP"


def _steps(record: Record, mode: int | str) -> float:
    return float(record.summary.get(f"steps/{mode}", np.nan))


def over_ddp(period: int, record: Record) -> float:
    """Return the steps a second over those of DDP; NaN if the run did not end well."""
    return _steps(record, period) / _steps(record, "ddp")


def over_expected(period: int, record: Record) -> float:
    """Return the steps a second over those that the queueing model expects."""
    return _steps(record, period) / expected(record, period)


METRICS = {
    f"steps over {base}, period {period}": Metric(
        partial(read, period), "ratio", "larger"
    )
    for period in PERIODS
    for base, read in {"DDP": over_ddp, "expected": over_expected}.items()
}
"""The metrics of a run, which are all comparisons within it."""


# -- the queueing model ----------------------------------------------------------------


def expected(record: Record, period: int) -> float:
    """Return the steps per second of all workers by mean value analysis."""
    return period * throughput(*queue(record, period), record.config["workers"])


def queue(record: Record, period: int) -> tuple[float, list[float]]:
    """Return Z and S of :func:`throughput` for a worker's round, from its own times.

    A step takes t seconds without an exchange, an exchange e, of which the center's
    process takes a. On one machine the center is the only station: Z = P t + e - a and
    S = (a).

    On links, an exchange of B bytes passes three stations: the center's incoming link,
    the center, and its outgoing link. A program that sends zeros measures the bandwidth
    W of the link and its latency l one way: Z = P t + 2 l and S = (B / W, a, B / W).
    """
    numbers = record.summary
    steps, center = period * numbers["seconds/step"], numbers["seconds/center"]
    if "link/bandwidth" not in numbers:
        return steps + max(0.0, numbers["seconds/exchange"] - center), [center]
    size = FLOAT * weights_of(record.config["model_mb"])
    transfer = size / numbers["link/bandwidth"]
    return steps + 2 * numbers["link/latency"], [transfer, center, transfer]


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


def modes(records: Sequence[Record]) -> pd.DataFrame:
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
            values = {
                "steps": [_steps(record, period) for record in group],
                "expected": [expected(record, period) for record in group],
                "over_expected": [over_expected(period, record) for record in group],
                "over_ddp": [over_ddp(period, record) for record in group],
            }
            row = {**labels, "mode": f"period {period}", "period": period}
            for name, of in values.items():
                row |= interval(name, of)
            rows.append(row)
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
