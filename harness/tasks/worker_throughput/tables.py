"""The table of this experiment only, computed from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.statistics import bootstrap, median

__all__ = ["center"]


def center(records: Sequence[Record]) -> pd.DataFrame:
    """Pushes per second of the center, and of an actor that only adds.

    Over all runs, because the number of workers that train later has no effect here.
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
