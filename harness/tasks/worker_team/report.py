"""The metrics, tables and figures of every experiment with workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

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

Reader = Callable[[Record], float]

APART = ("workers",)
"""The settings that distinguish runs in the tables."""

DDP = "DDP"


class Law(NamedTuple):
    """The queueing model of a run, from other measurements in it.

    Attributes:
        queue: returns Z and S of :func:`throughput` at a
            period.
        reduced: returns steps per second with an all-reduce in every step; None without
            a prediction.
    """

    queue: Callable[[Record, int], tuple[float, Sequence[float]]]
    reduced: Reader | None = None

    def expected(self, record: Record, period: int) -> float:
        """Return the steps per second of all workers by mean value analysis."""
        queue = self.queue(record, period)
        return period * throughput(*queue, record.config["workers"])


def ratio(read: Reader, better: Literal["smaller", "larger"] = "larger") -> Metric:
    """Return a metric that is NaN for runs that did not end well."""
    return Metric(lambda r: read(r) if r.status == "ok" else np.nan, "ratio", better)


def metrics(law: Law) -> dict[str, Metric]:
    """Return the comparisons within a run, for each period.

    With a round's bytes equal to those of a step of DDP, a worker sends 1 / period of
    a rank's bytes per step.
    """

    def over_ddp(period: int, record: Record) -> float:
        return _steps(record, period) / _steps(record, "ddp")

    def over_expected(period: int, record: Record) -> float:
        return _steps(record, period) / law.expected(record, period)

    def bytes_over_ddp(period: int, record: Record) -> float:
        of_ddp = record.summary.get("bytes/ddp", np.nan)
        return period * record.summary[f"bytes/{period}"] / of_ddp

    made = {}
    for period in PERIODS:
        expected = ratio(partial(over_expected, period))
        sent = ratio(partial(bytes_over_ddp, period), "smaller")
        made[f"steps over DDP, period {period}"] = ratio(partial(over_ddp, period))
        made[f"steps over expected, period {period}"] = expected
        made[f"round over DDP's step in bytes, period {period}"] = sent
    return made


def _steps(record: Record, mode: int | str) -> float:
    return float(record.summary[f"steps/{mode}"])


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


def modes(records: Sequence[Record], law: Law) -> pd.DataFrame:
    """Steps per second of all workers, a row per mode; medians over seeds.

    ``expected`` is computed by the law from other values of the same run. The ratios
    ``over_expected`` and ``over_ddp`` are also computed within a run.
    ``bytes_per_step``: the bytes that a worker sends. ``staleness``: the mean of all
    pushes, in rounds of the center; DDP has none. Medians have intervals.
    """
    rows = []
    for group in by_config(records):
        workers, seeds = group[0].config["workers"], len(group)
        for period in (None, *PERIODS):
            row: dict[str, Any] = {"workers": workers}
            row["mode"] = f"period {period}" if period else DDP
            row |= {"period": period or 1, "seeds": seeds}
            numbers = [_numbers(record, law, period) for record in group]
            for name in numbers[0]:
                row |= interval(name, [each[name] for each in numbers])
            rows.append(row)
    return pd.DataFrame(rows)


def _numbers(record: Record, law: Law, period: int | None) -> dict[str, float]:
    """Return the numbers of a mode in one run; a period of None is DDP."""
    ddp, summary = _steps(record, "ddp"), record.summary
    if period is None:
        of_ddp = {"steps": ddp, "bytes_per_step": summary.get("bytes/ddp", np.nan)}
        if law.reduced is None:
            return of_ddp
        expected = law.reduced(record)
        return of_ddp | {"expected": expected, "over_expected": ddp / expected}
    steps, expected = _steps(record, period), law.expected(record, period)
    return {
        "steps": steps,
        "expected": expected,
        "over_expected": steps / expected,
        "over_ddp": steps / ddp,
        "bytes_per_step": summary[f"bytes/{period}"],
        "staleness": mean_staleness(record, period),
    }


def mean_staleness(record: Record, period: int) -> float:
    """Return the mean staleness of all pushes of a run."""
    values, pushes = (
        np.asarray(record.series[name], float)
        for name in ("staleness", f"pushes/{period}")
    )
    return float(values @ pushes / pushes.sum())


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
