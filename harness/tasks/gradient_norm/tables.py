"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.statistics import Floats
from harness.tasks.cells import backend_of, grouped

__all__ = ["KEYS", "norms"]

KEYS = ["gradients", "backend"]

MILLION = 1e6


def norms(records: Sequence[Record]) -> pd.DataFrame:
    """A row per kind of gradients and backend, over all lists of all runs.

    ``equal`` is the share of lists whose two norms agree to the bit. ``unequal`` is the
    share of clipped elements that do not agree. ``above`` is the excess of the
    multitask norm over the stock one, in parts per million: the median, the ``lowest``
    and the ``highest``.
    """
    return pd.DataFrame([_row(group) for group in grouped(records)])


def _row(group: Sequence[Record]) -> dict[str, Any]:
    multitask, stock = _all(group, "multitask"), _all(group, "stock")
    above = MILLION * (multitask - stock) / stock
    return {
        "gradients": group[0].config["gradients"]["label"],
        "backend": backend_of(group[0]),
        "seeds": len(group),
        "lists": len(above),
        "equal": float(np.mean(multitask == stock)),
        "above": float(np.median(above)),
        "lowest": float(above.min()),
        "highest": float(above.max()),
        "unequal": float(_all(group, "unequal").sum() / _all(group, "entries").sum()),
    }


def _all(group: Sequence[Record], name: str) -> Floats:
    """Return the concatenated series of all runs."""
    return np.concatenate([np.asarray(record.series[name]) for record in group])
