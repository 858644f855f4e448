"""Records of runs with embeddings as cells: all but the seed the same, on one host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.record import Record
from harness.stats import Floats, Interval, bootstrap, median
from harness.tasks.embeddings.settings import EmbeddingSettings

__all__ = [
    "Cell",
    "agreeing",
    "cells",
    "columns",
    "curves",
    "differences",
    "hosts",
    "mean",
    "paired",
    "quoted",
]

RANKS = ("mrr", "hits")
"""Series of which more is better."""


@dataclass(frozen=True)
class Cell:
    """The runs that differ in nothing but their seed, on one host.

    Attributes:
        host: the backend, and its device where that is not the CPU.
        varied: what names the cell in tables beside optimizer, limit and host.
    """

    host: str
    settings: EmbeddingSettings
    records: Sequence[Record]
    varied: Mapping[str, Any]

    @property
    def labels(self) -> dict[str, Any]:
        """The columns that name the cell in every table."""
        name = self.settings.optimizer["name"]
        limit = self.settings.limit
        return {"optimizer": name, **self.varied, "limit": limit, "host": self.host}

    def column(self, name: str) -> Floats:
        """Return a series of all runs, [seeds, checkpoints].

        Once a run has diverged, its ranks count as 0 and all else as infinite.
        """
        worst = 0.0 if name in RANKS else np.inf
        length = len(self.settings.measured_at)
        rows = [np.asarray(record.series[name], float) for record in self.records]
        padded = [np.pad(r, (0, length - len(r)), constant_values=worst) for r in rows]
        return np.where(np.isnan(padded), worst, padded)

    def single(self, name: str) -> Floats:
        """Return a number of each run's summary, [seeds]; NaN if it diverged."""
        return np.array([record.summary.get(name, np.nan) for record in self.records])


def cells(
    records: Sequence[Record],
    settings: type[EmbeddingSettings],
    varied: Sequence[str] = (),
) -> list[Cell]:
    """Group records that differ in nothing but their seed, in order of appearance."""
    groups: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.seed):
        groups.setdefault(f"{_host(record)} {record.config}", []).append(record)
    made = []
    for group in groups.values():
        config = group[0].config
        more = {name: config[name] for name in varied}
        made.append(Cell(_host(group[0]), settings(**config), group, more))
    return made


def paired(of: Sequence[Cell], limit: str, other: str) -> Iterator[tuple[Cell, Cell]]:
    """Pair cells of one limit with those that differ in it alone, by seed."""
    for a, b in product(of, of):
        alike = replace(a.settings, limit=other) == b.settings
        if a.settings.limit == limit and alike and a.host == b.host:
            yield from _same_seeds(a, b)


def differences(of: Sequence[Cell], names: Sequence[str]) -> pd.DataFrame:
    """Return what a limit other than ``clip`` changes at the end of training.

    ``estimate`` = mean over seeds of (this limit - clip), paired by seed, with its
    interval; ``what`` is the series.
    """
    rows = []
    for limit in ("none", "lookup"):
        for other, clipped in paired(of, limit, "clip"):
            for name in names:
                a, b = (cell.column(name)[:, -1] for cell in (other, clipped))
                with np.errstate(invalid="ignore"):
                    apart = np.where(a == b, 0.0, a - b)
                numbers = columns(bootstrap(mean, apart), "estimate", "low", "high")
                rows.append({**other.labels, "what": name, **numbers})
    return pd.DataFrame(rows)


def curves(of: Sequence[Cell], names: Sequence[str]) -> pd.DataFrame:
    """Return series over the steps: the median over the seeds with its interval."""
    frames = []
    for cell, name in product(of, names):
        interval = bootstrap(median, cell.column(name))
        labels = {**cell.labels, "what": name, "step": cell.settings.measured_at}
        frames.append(
            pd.DataFrame({**labels, **columns(interval, "median", "low", "high")})
        )
    return pd.concat(frames, ignore_index=True)


def hosts(of: Sequence[Cell], name: str) -> pd.DataFrame:
    """Return how far two hosts are apart on the same seeds, over the steps.

    ``median`` and ``highest`` over the seeds of |a - b| / max(|a|, |b|); ``against`` is
    the host that ``host`` is compared with.
    """
    frames = []
    for a, b in product(of, of):
        if not (a.host == of[0].host != b.host and a.settings == b.settings):
            continue
        for first, other in _same_seeds(a, b):
            one, two = first.column(name), other.column(name)
            with np.errstate(invalid="ignore"):
                gap = np.abs(one - two) / np.maximum(np.abs(one), np.abs(two))
            gaps = np.where(one == two, 0.0, gap)
            labels = {**other.labels, "against": first.host, "what": name}
            labels["step"] = first.settings.measured_at
            numbers = {"median": np.median(gaps, axis=0), "highest": gaps.max(axis=0)}
            frames.append(pd.DataFrame({**labels, **numbers}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def columns(interval: Interval, *names: str) -> dict[str, Any]:
    """Return estimate, low and high under these names."""
    return dict(zip(names, interval, strict=True))


def mean(values: Floats) -> Floats:
    """The mean over the seeds."""
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
    """Write the range of some numbers: ``0.16 to 0.21``, or ``0.16`` if it is one."""
    numbers = np.asarray(values, float)
    low, high = format(numbers.min(), digits), format(numbers.max(), digits)
    return low if low == high else f"{low} to {high}"


def _same_seeds(a: Cell, b: Cell) -> Iterator[tuple[Cell, Cell]]:
    common = {r.seed for r in a.records} & {r.seed for r in b.records}
    if common:
        kept = [[r for r in cell.records if r.seed in common] for cell in (a, b)]
        yield replace(a, records=kept[0]), replace(b, records=kept[1])


def _host(record: Record) -> str:
    backend, device = record.subject["backend"], record.subject["device"]
    return backend if device == "cpu" else f"{backend} on {device}"
