"""The tables of the experiment, each a function of records alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.cells import grouped
from harness.tasks.worker_throughput.law import expected_steps, most_steps
from harness.tasks.worker_throughput.settings import PERIODS

__all__ = ["DDP", "bytes_over_ddp", "center", "modes", "one_worker", "staleness"]

DDP = "DDP"

Reader = Callable[[Record], float]


def modes(records: Sequence[Record]) -> pd.DataFrame:
    """Steps a second of all workers, a row a mode; medians over seeds with intervals.

    ``expected`` is what the planner makes of one worker's times in the same run, and
    ``over_expected`` the measured number over it; ``over_ddp`` is made within a run,
    too. ``bytes_per_step`` are those that a worker sends, ``staleness`` the mean of all
    pushes, in rounds of the center. DDP has neither an expectation nor staleness.
    """
    rows = []
    for group in grouped(records):
        workers = group[0].config["workers"]
        row = {"workers": workers, "mode": DDP, "period": 1, "seeds": len(group)}
        row |= _interval("steps", group, lambda r: r.summary["steps/ddp"])
        row |= _interval("bytes_per_step", group, _ddp_bytes)
        rows.append(row)
        rows += [_asynchronous(group, workers, period) for period in PERIODS]
    return pd.DataFrame(rows)


def _asynchronous(group: Sequence[Record], workers: int, period: int) -> dict[str, Any]:
    """Return the row of a period."""

    def steps(record: Record) -> float:
        return float(record.summary[f"steps/{period}"])

    def expected(record: Record) -> float:
        return expected_steps(record.summary, period, workers)

    def most(record: Record) -> float:
        return most_steps(record.summary, period, workers)

    readers: dict[str, Reader] = {
        "steps": steps,
        "expected": expected,
        "most": most,
        "over_expected": lambda record: steps(record) / expected(record),
        "over_ddp": lambda record: steps(record) / record.summary["steps/ddp"],
        "bytes_per_step": lambda record: record.summary[f"bytes/{period}"],
        "staleness": lambda record: mean_staleness(record, period),
    }
    row: dict[str, Any] = {"workers": workers, "mode": f"period {period}"}
    row |= {"period": period, "seeds": len(group)}
    for name, read in readers.items():
        row |= _interval(name, group, read)
    return row


def bytes_over_ddp(record: Record, period: int) -> float:
    """Return a worker's bytes a round over a rank's a step: 1 means 1 / period."""
    return float(period * record.summary[f"bytes/{period}"] / _ddp_bytes(record))


def _ddp_bytes(record: Record) -> float:
    return float(record.summary.get("bytes/ddp", np.nan))


def mean_staleness(record: Record, period: int) -> float:
    """Return the mean over all pushes of a run."""
    values, pushes = (
        np.asarray(record.series[name], float)
        for name in ("staleness", f"pushes/{period}")
    )
    return float(values @ pushes / pushes.sum())


def staleness(records: Sequence[Record]) -> pd.DataFrame:
    """The share of the pushes of all runs that were so many rounds behind."""
    rows = []
    for group in grouped(records):
        for period in PERIODS:
            longest = max(len(record.series["staleness"]) for record in group)
            counts = np.zeros(longest)
            for record in group:
                pushes = np.asarray(record.series[f"pushes/{period}"], float)
                counts[: len(pushes)] += pushes
            workers = group[0].config["workers"]
            rows += [
                {"workers": workers, "period": period, "staleness": k, "share": share}
                for k, share in enumerate(counts / counts.sum())
                if share
            ]
    return pd.DataFrame(rows)


def one_worker(records: Sequence[Record]) -> pd.DataFrame:
    """What one worker takes, in milliseconds; medians over the runs."""
    rows = []
    for group in grouped(records):
        row: dict[str, Any] = {"workers": group[0].config["workers"]}
        for name in ("step", "exchange", "center"):
            milliseconds = [1000 * r.summary[f"seconds/{name}"] for r in group]
            row |= bootstrap(median, milliseconds).named(f"{name}_ms")
        rows.append(row)
    return pd.DataFrame(rows)


def center(records: Sequence[Record]) -> pd.DataFrame:
    """Pushes a second that the center takes, and an actor that only adds.

    Over all runs: how many workers train later makes no difference here.
    """
    rows = []
    for size, setting in (("small", "model_mb"), ("large", "large_mb")):
        pushes = {
            what: np.array([r.summary[f"{what}/{size}"] for r in records])
            for what in ("center", "adder")
        }
        row: dict[str, Any] = {"model_mb": records[0].config[setting]}
        for what, values in pushes.items():
            row |= bootstrap(median, values).named(what)
        ratio = pushes["center"] / pushes["adder"]
        row |= bootstrap(median, ratio).named("ratio")
        rows.append({**row, "runs": len(records)})
    return pd.DataFrame(rows)


def _interval(name: str, records: Sequence[Record], read: Reader) -> dict[str, Any]:
    values = [read(record) for record in records]
    if np.isnan(values).any():
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"), np.nan)
    return bootstrap(median, values).named(name)
