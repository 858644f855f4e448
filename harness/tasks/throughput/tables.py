"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.statistics import bootstrap, median

__all__ = ["first_net", "rates"]

SPEEDUP = ("speedup", "speedup_low", "speedup_high")


def rates(records: Sequence[Record]) -> pd.DataFrame:
    """Examples per second of each mode, also relative to fp32, by device and net.

    Medians over the seeds with intervals; ``speedup`` pairs the runs of each seed.
    """
    groups: dict[tuple[str, str, str], dict[int, float]] = {}
    for record in records:
        config = record.config
        size = f"{config['depth']} x {config['width']}, batch {config['batch']}"
        name = record.subject.get("device_name", record.subject["device"])
        key = name, size, config["mode"]
        groups.setdefault(key, {})[record.seed] = record.summary["rate"]
    rows = []
    for (name, size, mode), values in groups.items():
        base = groups.get((name, size, "fp32"), {})
        seeds = sorted(set(values) & set(base))
        row: dict[str, Any] = {"mode": mode, "device": name, "net": size}
        row |= bootstrap(median, list(values.values())).named("rate")
        row |= dict.fromkeys(SPEEDUP, np.nan)
        if seeds:
            pairs = [values[seed] / base[seed] for seed in seeds]
            row |= bootstrap(median, pairs).named("speedup")
        rows.append({**row, "seeds": len(values)})
    return pd.DataFrame(rows)


def first_net(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the device and net in the first row."""
    first = table.iloc[0]
    same = (table["device"] == first["device"]) & (table["net"] == first["net"])
    rows: pd.DataFrame = table[same]
    return rows
