"""The table of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.cells import on_gpus

__all__ = ["steps", "waits"]


def steps(records: Sequence[Record]) -> pd.DataFrame:
    """Time, waits and launches of each stack and way, by device; medians over seeds.

    ``over_bare`` is the time over that of the bare step without a graph.
    """
    groups: dict[tuple[str, str, str], dict[int, Record]] = {}
    for record in on_gpus(records):
        name = record.subject.get("device_name", record.subject["device"])
        key = name, record.config["stack"], record.config["way"]
        groups.setdefault(key, {})[record.seed] = record
    rows = []
    for (name, stack, way), runs in groups.items():
        row: dict[str, Any] = {"stack": stack, "way": way, "device": name}
        times = [run.summary["time"] for run in runs.values()]
        row |= bootstrap(median, times).named("time")
        bare = groups.get((name, "bare", "host"), {})
        seeds = sorted(set(runs) & set(bare))
        pairs = [runs[k].summary["time"] / bare[k].summary["time"] for k in seeds]
        row["over_bare"] = float(np.median(pairs)) if pairs else np.nan
        for count in ("waits", "launches"):
            row[count] = float(np.median([r.summary[count] for r in runs.values()]))
        rows.append({**row, "seeds": len(runs)})
    return pd.DataFrame(rows)


def waits(number: float) -> str:
    """Return a number of waits in words."""
    return f"{number:.0f} wait{'' if number == 1 else 's'}"
