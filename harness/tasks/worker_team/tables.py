"""The tables of every experiment with workers, computed from records alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.tasks.cells import by_config, interval
from harness.tasks.worker_team.settings import PERIODS

DDP = "DDP"

Reader = Callable[[Record], float]

MILLISECONDS = {
    f"{name}_ms": (f"seconds/{name}", 1e3) for name in ("step", "exchange", "center")
}
"""The times of one worker: the names in a summary, and the units in tables."""


@dataclass(frozen=True)
class Law:
    """The expected steps per second of a run, from other measurements in it.

    Attributes:
        expected: all workers at a period, by mean value analysis.
        most: its asymptote.
        reduced: with an all-reduce in every step; None without a prediction.
    """

    expected: Callable[[Record, int], float]
    most: Callable[[Record, int], float]
    reduced: Reader | None = None


def modes(records: Sequence[Record], law: Law) -> pd.DataFrame:
    """Steps per second of all workers, a row per mode; medians over seeds.

    ``expected`` is computed by the law from other values of the same run. The ratios
    ``over_expected`` and ``over_ddp`` are also computed within a run.
    ``bytes_per_step``: the bytes that a worker sends. ``staleness``: the mean of all
    pushes, in rounds of the center; DDP has none. Medians have intervals.
    """
    rows = []
    for group in by_config(records):
        rows.append(_of_ddp(group, law))
        rows += [_asynchronous(group, law, period) for period in PERIODS]
    return pd.DataFrame(rows)


def _of_ddp(group: Sequence[Record], law: Law) -> dict[str, Any]:
    """Return the row of DDP."""
    readers: dict[str, Reader] = {"steps": _ddp_steps, "bytes_per_step": _ddp_bytes}
    if reduced := law.reduced:
        readers["expected"] = reduced
        readers["over_expected"] = lambda record: _ddp_steps(record) / reduced(record)
    return _row(group, DDP, 1, readers)


def _asynchronous(group: Sequence[Record], law: Law, period: int) -> dict[str, Any]:
    """Return the row of a period."""

    def steps(record: Record) -> float:
        return float(record.summary[f"steps/{period}"])

    readers: dict[str, Reader] = {
        "steps": steps,
        "expected": lambda record: law.expected(record, period),
        "most": lambda record: law.most(record, period),
        "over_expected": lambda record: steps(record) / law.expected(record, period),
        "over_ddp": lambda record: steps(record) / _ddp_steps(record),
        "bytes_per_step": lambda record: record.summary[f"bytes/{period}"],
        "staleness": lambda record: mean_staleness(record, period),
    }
    return _row(group, f"period {period}", period, readers)


def _row(
    group: Sequence[Record], mode: str, period: int, readers: Mapping[str, Reader]
) -> dict[str, Any]:
    workers = group[0].config["workers"]
    row: dict[str, Any] = {"workers": workers, "mode": mode}
    row |= {"period": period, "seeds": len(group)}
    for name, read in readers.items():
        row |= interval(name, [read(record) for record in group])
    return row


def bytes_over_ddp(record: Record, period: int) -> float:
    """Return a worker's bytes per round over a rank's per step.

    With 1, a worker's bytes per step are 1 / period of a rank's.
    """
    return float(period * record.summary[f"bytes/{period}"] / _ddp_bytes(record))


def _ddp_steps(record: Record) -> float:
    return float(record.summary["steps/ddp"])


def _ddp_bytes(record: Record) -> float:
    return float(record.summary.get("bytes/ddp", np.nan))


def mean_staleness(record: Record, period: int) -> float:
    """Return the mean staleness of all pushes of a run."""
    values, pushes = (
        np.asarray(record.series[name], float)
        for name in ("staleness", f"pushes/{period}")
    )
    return float(values @ pushes / pushes.sum())


def staleness(records: Sequence[Record]) -> pd.DataFrame:
    """The share of pushes with each staleness, over all runs."""
    rows = []
    for group in by_config(records):
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


def medians(
    records: Sequence[Record], columns: Mapping[str, tuple[str, float]]
) -> pd.DataFrame:
    """Medians of values of the summary for each setting, in other units.

    ``columns``: column -> (name in the summary, factor).
    """
    rows = []
    for group in by_config(records):
        row: dict[str, Any] = {"workers": group[0].config["workers"]}
        for column, (name, factor) in columns.items():
            values = [factor * record.summary[name] for record in group]
            row |= interval(column, values)
        rows.append(row)
    return pd.DataFrame(rows)
