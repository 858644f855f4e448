"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.statistics import Floats, Interval, bootstrap, median
from harness.tasks.cells import backend_of, grouped
from harness.tasks.stable_rates.ranges import Range, stable_range
from harness.tasks.stable_rates.settings import Settings

__all__ = ["ARM", "Cell", "cells", "range_of", "ranges", "sweeps"]

ARM = ["method", "batch", "backend"]

BAR = 0.9
"""The held-out accuracy that a good rate reaches: nine of ten digits, for every arm."""

ROUNDING = 1e-6
"""The error of a share in float32. A rate whose accuracy is the bar is good."""


@dataclass(frozen=True)
class Cell:
    """The runs of one method and batch on one backend."""

    settings: Settings
    records: Sequence[Record]

    @property
    def labels(self) -> dict[str, str | int]:
        """The columns that name the cell in every table."""
        settings = self.settings
        names = (settings.label, settings.batch, backend_of(self.records[0]))
        return dict(zip(ARM, names, strict=True))

    @property
    def accuracies(self) -> Floats:
        """The final accuracy of each run at each rate: [seeds, rates]."""
        return np.array([record.series["accuracy"] for record in self.records], float)

    @property
    def median_range(self) -> Range:
        """The stable range of the median accuracies."""
        medians = np.median(self.accuracies, axis=0).tolist()
        return _stable_range(self.settings.rates, medians)


def cells(records: Sequence[Record]) -> list[Cell]:
    """Group records that differ only in their seed, in order of appearance."""
    return [Cell(Settings(**group[0].config), group) for group in grouped(records)]


def sweeps(of: Sequence[Cell]) -> pd.DataFrame:
    """A row per rate: the final ``accuracy``, the median with its interval.

    ``stable`` marks the stable range of the medians.
    """
    frames = []
    for cell in of:
        rates, ends = np.asarray(cell.settings.rates), cell.median_range
        columns = {
            "rate": rates,
            **bootstrap(median, cell.accuracies).named("accuracy"),
            "stable": (ends.lowest <= rates) & (rates <= ends.highest),
        }
        frames.append(pd.DataFrame({**cell.labels, **columns}))
    return pd.concat(frames, ignore_index=True)


def ranges(of: Sequence[Cell]) -> pd.DataFrame:
    """A row per method and batch: medians over the seeds, with intervals.

    ``best`` is the highest accuracy of a sweep. ``width`` is the factor by which the
    rate may change in its stable range, 0 without a good rate; ``reached`` is the
    number of runs with one. ``best_rate``, ``lowest`` and ``highest``
    belong to the median accuracies. ``open`` is whether this range reaches an end of
    the sweep, so that it may be wider.
    """
    return pd.DataFrame([_range(cell) for cell in of])


def range_of(record: Record) -> Range:
    """Return the stable range of a run."""
    series = record.series
    return _stable_range(series["rate"], series["accuracy"])


def _stable_range(rates: Sequence[float], accuracies: Sequence[float]) -> Range:
    return stable_range(rates, accuracies, BAR - ROUNDING)


def _range(cell: Cell) -> dict[str, Any]:
    rates, ends = cell.settings.rates, cell.median_range
    of_runs = [range_of(record) for record in cell.records]
    widths = np.array([each.width for each in of_runs])
    row: dict[str, Any] = {
        **cell.labels,
        "seeds": len(cell.records),
        "steps": cell.settings.steps,
    }
    row |= bootstrap(median, [each.best for each in of_runs]).named("best")
    row |= _middle(widths).named("width")
    row["bar"] = BAR
    row["reached"] = int((widths > 0).sum())
    row |= {name: getattr(ends, name) for name in ("best_rate", "lowest", "highest")}
    row["open"] = ends.lowest == rates[0] or ends.highest == rates[-1]
    return row


def _middle(factors: Floats) -> Interval:
    """Return the median of factors on a logarithmic scale, with its interval.

    So with an even number of runs it is the geometric mean of the two middle ones.
    """
    with np.errstate(divide="ignore"):
        return Interval(*map(np.exp, bootstrap(median, np.log(factors))))
