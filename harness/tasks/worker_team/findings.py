"""Shared code of the findings of experiments with workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.cells import match_intervals
from harness.tasks.worker_team.settings import PERIODS
from harness.tasks.worker_team.tables import Law, Reader, bytes_over_ddp

__all__ = ["match", "of_good_runs", "team_metrics"]

SLACK = 0.2
"""The largest distance of intervals of ratios, because machines differ."""


def team_metrics(law: Law) -> dict[str, Metric]:
    """Return the comparisons within a run, for each period."""

    def over_expected(period: int, record: Record) -> float:
        return record.summary[f"steps/{period}"] / law.expected(record, period)

    def in_bytes(period: int, record: Record) -> float:
        return bytes_over_ddp(record, period)

    return {
        **dict(_metrics("steps over DDP", _over_ddp, "larger")),
        **dict(_metrics("steps over expected", over_expected, "larger")),
        **dict(_metrics("round over DDP's step in bytes", in_bytes, "smaller")),
    }


def _over_ddp(period: int, record: Record) -> float:
    return record.summary[f"steps/{period}"] / record.summary["steps/ddp"]


def _metrics(
    name: str,
    read: Callable[[int, Record], float],
    better: Literal["smaller", "larger"],
) -> Iterator[tuple[str, Metric]]:
    for period in PERIODS:
        of_period = of_good_runs(partial(read, period))
        yield f"{name}, period {period}", Metric(of_period, "ratio", better)


def of_good_runs(read: Reader) -> Reader:
    """Return a reader that is NaN for runs that did not end well."""
    return lambda record: read(record) if record.status == "ok" else np.nan


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare ratios to DDP, which agree between machines; absolute rates do not."""
    keys = ["workers", "mode"]
    return match_intervals(published["steps"], own["steps"], keys, "over_ddp", SLACK)
