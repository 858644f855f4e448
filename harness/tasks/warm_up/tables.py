"""The table of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.cells import backend_of, grouped

__all__ = ["ARM", "bits", "ends", "state_ratio"]

ARM = ["optimizer", "warm_up", "learning_rate", "backend"]


def bits(record: Record) -> float:
    """Return the held-out loss in bits per byte, infinite if the run diverged."""
    return record.summary.get("bits", np.inf)


def state_ratio(record: Record) -> float:
    """Return the bytes of state per byte of weights; NaN if the run diverged."""
    summary = record.summary
    return summary["state"] / summary["weights"] if summary else np.nan


def ends(records: Sequence[Record]) -> pd.DataFrame:
    """A row per arm: the median ``bits`` per byte with its interval, and the state.

    ``state`` is in bytes, and ``ratio`` in bytes of state per byte of weights; both are
    NaN if all runs diverged. ``best`` marks the rate with the lowest loss, if an
    optimizer and its warm-up had several.
    """
    table = pd.DataFrame([_end(group) for group in grouped(records)])
    order = table.sort_values("bits", kind="stable")
    first = ~order.duplicated(["optimizer", "warm_up", "backend"])
    return table.assign(best=first.reindex(table.index))


def _end(group: Sequence[Record]) -> dict[str, Any]:
    config = group[0].config
    measured = [record for record in group if record.summary]
    numbers = measured[0].summary if measured else {}
    return {
        **{name: config[name] for name in ARM[:-1]},
        "backend": backend_of(group[0]),
        "seeds": len(group),
        "diverged": len(group) - len(measured),
        **bootstrap(median, [bits(record) for record in group]).named("bits"),
        "state": numbers.get("state", np.nan),
        "ratio": state_ratio(measured[0]) if measured else np.nan,
    }
