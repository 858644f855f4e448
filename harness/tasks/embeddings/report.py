"""Tables and figures of runs with embeddings, from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Floats, bootstrap, median
from harness.tasks.cells import Cell

RANKS = ("mrr", "mrr/validation", "ndcg")
"""The series in which larger values are better."""

NAMES = {
    "none": "no limit",
    "default": "clipped after the step",
    "strict": "normalized",
    "ink": "L2 penalty",
}
"""Hue of a limit -> its name; ``default`` is our wrapper."""

HUES = {"clip": "default", "lookup": "strict", "normalise": "strict", "penalty": "ink"}
"""Limit -> its hue; another one has its own name."""


def last(name: str, unit: str) -> Metric:
    """Return the metric that reads a series at the end of training.

    If a run diverged, ranks are 0 and all other values are infinite.
    """

    def read(record: Record) -> float:
        return record.series[name][-1] if record.status == "ok" else _worst(name)

    return Metric(read, unit, "larger" if name in RANKS else "smaller")


def _worst(name: str) -> float:
    return 0.0 if name in RANKS else np.inf


def measured(cell: Cell, name: str) -> Floats:
    """Return a series of all runs, [seeds, checkpoints], at its worst after one ends.

    After a run diverged, its ranks are 0 and all other values are infinite.
    """
    return cell.column(name, _worst(name))


def ends(of: Sequence[Cell], names: Sequence[str]) -> pd.DataFrame:
    """Return series at the end: the median over the seeds with its interval."""
    rows = []
    for cell, name in product(of, names):
        interval = bootstrap(median, measured(cell, name)[:, -1])
        rows.append({**cell.labels, "what": name, **interval.columns("median")})
    return pd.DataFrame(rows)


def quoted(values: npt.ArrayLike, digits: str = ".2f") -> str:
    """Return a range of numbers as text: ``0.16 to 0.21``, or ``0.16`` if all agree.

    Empty without numbers, so that a sentence can be left out.
    """
    numbers = np.asarray(values, float)
    if not numbers.size:
        return ""
    low, high = format(numbers.min(), digits), format(numbers.max(), digits)
    return low if low == high else f"{low} to {high}"


def with_cases(rows: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Add the hue of each limit, and a case named by some columns."""
    cases = rows[list(columns)].agg(", ".join, axis=1)
    cases = cases.str.replace("GradientDescent", "SGD")
    return rows.assign(case=cases, hue=rows["limit"].replace(HUES))
