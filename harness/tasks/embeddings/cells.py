"""Records of runs with embeddings as cells, in which only the seed differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.metrics import Metric
from harness.records.record import Record
from harness.statistics import Floats, bootstrap, median, relative_gap
from harness.tasks.cells import SeedCell, backend_of, grouped, same_seeds, twins
from harness.tasks.embeddings.settings import EmbeddingSettings

__all__ = [
    "Cell",
    "agreeing",
    "backends",
    "cells",
    "curves",
    "differences",
    "last",
    "mean",
    "paired",
    "quoted",
]

RANKS = ("mrr", "hits")
"""Series of which more is better."""


def last(name: str, unit: str) -> Metric:
    """Return the metric that a series has at the end of training.

    Of a run that diverged, ranks count as 0 and all else as infinite.
    """
    ranked = name in RANKS

    def read(record: Record) -> float:
        if record.status != "ok":
            return 0.0 if ranked else np.inf
        return record.series[name][-1]

    return Metric(read, unit, "larger" if ranked else "smaller")


@dataclass(frozen=True)
class Cell(SeedCell[EmbeddingSettings]):
    """The runs that differ in nothing but their seed, on one backend and device.

    ``varied`` names the cell in tables beside optimizer, limit and backend.
    """

    varied: Mapping[str, Any]

    @property
    def labels(self) -> dict[str, Any]:
        """The columns that name the cell in every table."""
        name = self.settings.optimizer["name"]
        limit = self.settings.limit
        return {
            "optimizer": name,
            **self.varied,
            "limit": limit,
            "backend": self.backend,
        }

    def measured(self, name: str) -> Floats:
        """Return a series of all runs, [seeds, checkpoints].

        Once a run has diverged, its ranks count as 0 and all else as infinite.
        """
        return self.column(name, 0.0 if name in RANKS else np.inf)


def cells(
    records: Sequence[Record],
    settings: type[EmbeddingSettings],
    varied: Sequence[str] = (),
) -> list[Cell]:
    """Group records that differ in nothing but their seed, in order of appearance."""
    result = []
    for group in grouped(records):
        config = group[0].config
        more = {name: config[name] for name in varied}
        result.append(Cell(backend_of(group[0]), settings(**config), group, more))
    return result


def paired(of: Sequence[Cell], limit: str, other: str) -> Iterator[tuple[Cell, Cell]]:
    """Pair cells of one limit with those that differ in it alone, by seed."""
    for a, b in product(of, of):
        alike = replace(a.settings, limit=other) == b.settings
        if a.settings.limit == limit and alike and a.backend == b.backend:
            yield from same_seeds(a, b)


def differences(of: Sequence[Cell], names: Sequence[str]) -> pd.DataFrame:
    """Return what a limit other than ``clip`` changes at the end of training.

    ``estimate`` = mean over seeds of (this limit - clip), paired by seed, with its
    interval; ``what`` is the series.
    """
    rows = []
    for limit in ("none", "lookup"):
        for other, clipped in paired(of, limit, "clip"):
            for name in names:
                a, b = (cell.measured(name)[:, -1] for cell in (other, clipped))
                with np.errstate(invalid="ignore"):
                    apart = np.where(a == b, 0.0, a - b)
                numbers = bootstrap(mean, apart).columns("estimate")
                rows.append({**other.labels, "what": name, **numbers})
    columns = [*of[0].labels, "what", "estimate", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def curves(of: Sequence[Cell], names: Sequence[str]) -> pd.DataFrame:
    """Return series over the steps: the median over the seeds with its interval."""
    frames = []
    for cell, name in product(of, names):
        interval = bootstrap(median, cell.measured(name))
        labels = {**cell.labels, "what": name, "step": cell.settings.measured_at}
        frames.append(pd.DataFrame({**labels, **interval.columns("median")}))
    return pd.concat(frames, ignore_index=True)


def backends(of: Sequence[Cell], name: str) -> pd.DataFrame:
    """Return how far two backends are apart on the same seeds, over the steps.

    ``median`` and ``highest`` over the seeds of |a - b| / max(|a|, |b|); ``against`` is
    the backend that ``backend`` is compared with.
    """
    frames = []
    for first, other in twins(of):
        gaps = relative_gap(first.measured(name), other.measured(name))
        labels = {**other.labels, "against": first.backend, "what": name}
        labels["step"] = first.settings.measured_at
        numbers = {"median": np.median(gaps, axis=0), "highest": gaps.max(axis=0)}
        frames.append(pd.DataFrame({**labels, **numbers}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def mean(values: Floats) -> Floats:
    """The mean over the seeds; NaN where runs diverged on both sides of a pair."""
    with np.errstate(invalid="ignore"):
        result: Floats = values.mean(axis=1)
    return result


def agreeing(published: pd.DataFrame, own: pd.DataFrame) -> pd.DataFrame:
    """Compare differences with intervals, row by row.

    Runs of other lengths end elsewhere. So ``matches`` says whether two intervals
    overlap or else lie on the same side of 0.
    """
    numbers = ["estimate", "low", "high"]
    keys = [name for name in published.columns if name not in numbers]
    both = published.merge(own, on=keys, suffixes=("_published", "_own"))
    low = both[["low_published", "low_own"]]
    high = both[["high_published", "high_own"]]
    met = low.max(axis=1) <= high.min(axis=1)
    both["matches"] = met | (low > 0).all(axis=1) | (high < 0).all(axis=1)
    return both


def quoted(values: npt.ArrayLike, digits: str = ".2f") -> str:
    """Write the range of some numbers: ``0.16 to 0.21``, or ``0.16`` if it is one.

    Nothing if there are none, so that a sentence can be left out.
    """
    numbers = np.asarray(values, float)
    if not numbers.size:
        return ""
    low, high = format(numbers.min(), digits), format(numbers.max(), digits)
    return low if low == high else f"{low} to {high}"
