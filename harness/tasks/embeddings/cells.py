"""Group records of runs with embeddings into cells, in which only the seed differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import (
    Floats,
    bootstrap,
    median,
    paired_effects,
    relative_gap,
)
from harness.tasks.cells import SeedCell, backend_of, by_config, same_seeds, twins
from harness.tasks.embeddings.settings import EmbeddingSettings

__all__ = [
    "Cell",
    "agreeing",
    "backends",
    "cells",
    "curves",
    "differences",
    "last",
    "paired",
    "quoted",
]

S = TypeVar("S", bound=EmbeddingSettings)

RANKS = ("mrr", "mrr/validation", "hits", "ndcg", "recall")
"""The series in which larger values are better."""


def last(name: str, unit: str) -> Metric:
    """Return the metric that reads a series at the end of training.

    If a run diverged, ranks are 0 and all other values are infinite.
    """
    ranked = name in RANKS

    def read(record: Record) -> float:
        if record.status != "ok":
            return 0.0 if ranked else np.inf
        return record.series[name][-1]

    return Metric(read, unit, "larger" if ranked else "smaller")


@dataclass(frozen=True)
class Cell(SeedCell[EmbeddingSettings]):
    """The runs that differ only in their seed, on one backend and device.

    ``varied``: further labels of the cell, after optimizer, limit and backend.
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

        After a run diverged, its ranks are 0 and all other values are infinite.
        """
        return self.column(name, 0.0 if name in RANKS else np.inf)


def cells(
    records: Sequence[Record],
    settings: Callable[..., S],
    varied: Callable[[S], Mapping[str, Any]] = lambda _: {},
) -> list[Cell]:
    """Group records that differ only in their seed, in order of appearance.

    ``varied`` returns further labels of a cell, after optimizer, limit and backend.
    """
    result = []
    for group in by_config(records):
        of = settings(**group[0].config)
        result.append(Cell(backend_of(group[0]), of, group, varied(of)))
    return result


def paired(of: Sequence[Cell], limit: str, other: str) -> Iterator[tuple[Cell, Cell]]:
    """Pair cells of two limits whose other labels are equal, by seed.

    The learning rate is no label, so the cells of a pair may have different ones.
    """
    for a, b in product(of, of):
        alike = {**a.labels, "limit": other} == b.labels
        if a.settings.limit == limit and alike:
            yield from same_seeds(a, b)


def differences(
    of: Sequence[Cell], names: Sequence[str], against: str = "none"
) -> pd.DataFrame:
    """Return the effect of each limit at the end of training.

    ``estimate`` = median over seeds of (this limit - ``against``), paired by seed, with
    its interval; ``what`` is the series.
    """
    rows = []
    for limit in dict.fromkeys(cell.settings.limit for cell in of):
        pairs = paired(of, limit, against) if limit != against else ()
        for (mine, other), name in product(pairs, names):
            a, b = (cell.measured(name)[:, -1] for cell in (mine, other))
            apart = paired_effects(a, b, "difference")
            numbers = bootstrap(median, apart).columns("estimate")
            rows.append({**mine.labels, "what": name, **numbers})
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
    """Return the difference of two backends on the same seeds, over the steps.

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


def agreeing(published: pd.DataFrame, own: pd.DataFrame) -> pd.DataFrame:
    """Compare differences with intervals, row by row.

    Runs of another length end with other values. So ``matches`` is whether two
    intervals overlap or are on the same side of 0.
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
    """Return a range of numbers as text: ``0.16 to 0.21``, or ``0.16`` if all agree.

    Empty without numbers, so that a sentence can be left out.
    """
    numbers = np.asarray(values, float)
    if not numbers.size:
        return ""
    low, high = format(numbers.min(), digits), format(numbers.max(), digits)
    return low if low == high else f"{low} to {high}"
