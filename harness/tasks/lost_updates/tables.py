"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.statistics import Floats, bootstrap, median
from harness.tasks.cells import backend_of
from harness.tasks.lost_updates import laws

__all__ = ["curve", "updates"]

KEYS = ["method", "backend", "ratio"]


def updates(records: Sequence[Record]) -> pd.DataFrame:
    """A row per method, backend and ratio, medians over the seeds with intervals.

    ``first``: the share of updates lost in the first step. ``law``: the share by
    :func:`harness.tasks.lost_updates.laws.share_lost`, 0 with masters. ``numpy``: the
    share lost by NumPy's float16 with the same numbers. ``lost``: the share over all
    steps. ``moved``: the movement relative to the sum of the updates.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in sorted(records, key=lambda record: record.seed):
        key = record.config["method"], backend_of(record), float(record.config["ratio"])
        groups.setdefault(key, []).append(record)
    rows = [
        {**dict(zip(KEYS, key, strict=True)), **_row(key, group)}
        for key, group in groups.items()
    ]
    return pd.DataFrame(rows).sort_values(KEYS, ignore_index=True)


def curve(table: pd.DataFrame) -> pd.DataFrame:
    """The law over the ratios of the table, at 201 points."""
    low, high = np.log2(table["ratio"].min()), np.log2(table["ratio"].max())
    ratios = 2.0 ** np.linspace(low, high, 201)
    lost = [laws.share_lost(ratio) for ratio in ratios]
    return pd.DataFrame({"ratio": ratios, "lost": lost})


def _row(key: tuple[Any, ...], group: Sequence[Record]) -> dict[str, Any]:
    def of(name: str) -> Floats:
        return np.array([record.summary[name] for record in group], float)

    row: dict[str, Any] = {"law": laws.share_lost(key[2]) if key[0] == "fp16" else 0.0}
    row["numpy"] = float(np.median(of("numpy"))) if key[0] == "fp16" else 0.0
    for name in ("first", "lost", "moved"):
        row |= bootstrap(median, of(name)).named(name)
    return {**row, "steps": group[0].config["steps"], "seeds": len(group)}
