"""The table of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.statistics import bootstrap, median, paired_effects
from harness.tasks.cells import backend_of, grouped
from harness.tasks.training_throughput.training import CONTROL

__all__ = ["KEYS", "is_timed", "rates"]

KEYS = ["workload", "precision", "backend", "device"]
"""The columns that name a row."""


def is_timed(record: Record) -> bool:
    """Whether a run has times; fp16 on a CPU has none."""
    return record.status == "ok" and "rate/bare" in record.summary


def rates(records: Sequence[Record]) -> pd.DataFrame:
    """Examples per second and ratios within runs; medians over seeds with intervals.

    ``ratio`` = wrapped / bare. ``control`` = a second bare step / bare, the difference
    of two equal steps. A row without times has NaN and 0 ``seeds``.
    """
    rows = []
    for group in grouped(records):
        first, timed = group[0], [record for record in group if is_timed(record)]
        row: dict[str, Any] = {
            "workload": first.config["workload"],
            "precision": first.config["precision"],
            "backend": backend_of(first),
            "device": first.subject.get("device_name", first.subject["device"]),
        }
        bare, wrapped, again = (
            [record.summary[f"rate/{name}"] for record in timed]
            for name in ("bare", "wrapped", CONTROL)
        )
        row |= _interval("bare", bare) | _interval("wrapped", wrapped)
        row |= _ratio("ratio", wrapped, bare) | _ratio("control", again, bare)
        rows.append({**row, "seeds": len(timed)})
    return pd.DataFrame(rows)


def _interval(name: str, values: Sequence[float]) -> dict[str, Any]:
    if not values:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"), np.nan)
    return bootstrap(median, values).named(name)


def _ratio(name: str, one: Sequence[float], other: Sequence[float]) -> dict[str, Any]:
    effects = paired_effects(one, other, "log ratio").tolist() if one else []
    return {key: float(np.exp(end)) for key, end in _interval(name, effects).items()}
