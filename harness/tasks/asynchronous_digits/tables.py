"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.statistics import Floats, bootstrap, median
from harness.tasks.asynchronous_digits.settings import Settings
from harness.tasks.cells import grouped

__all__ = ["ARM", "CELL", "Cell", "cells", "curves", "ends"]

CELL = ["workers", "period"]
ARM = ["method", *CELL, "learning_rate"]

NUMBERS = ("accuracy", "mean_accuracy", "to_target", "staleness", "megabytes")

POINTS = 101
"""The number of points of a curve over simulated time."""


@dataclass(frozen=True)
class Cell:
    """The runs of one method, number of workers and period."""

    settings: Settings
    records: Sequence[Record]

    @property
    def labels(self) -> dict[str, str | int | float]:
        """The columns that name the cell in every table."""
        return {name: getattr(self.settings, name) for name in ARM}

    def number(self, name: str) -> Floats:
        """Return a value of each run's summary, [seeds]; the worst if it diverged."""
        worst = np.inf if name == "to_target" else 0.0
        found = [record.summary.get(name, worst) for record in self.records]
        return np.array(found, float)


def cells(records: Sequence[Record]) -> list[Cell]:
    """Group records that differ only in their seed, in order of appearance."""
    return [Cell(Settings(**group[0].config), group) for group in grouped(records)]


def ends(of: Sequence[Cell]) -> pd.DataFrame:
    """The results of the runs: medians over the seeds, two of them with intervals.

    The final ``accuracy`` and the ``mean_accuracy`` over simulated time are shares of
    held-out images. ``to_target`` is the time to 90% accuracy in mean local steps,
    infinite if it was not reached. ``staleness`` counts pushes of others;
    ``megabytes`` are the sent ones. ``best`` marks the learning rate with the highest
    accuracy, if a method had several.
    """
    rows = []
    for cell in of:
        row = {**cell.labels, "seeds": len(cell.records)}
        for name in NUMBERS:
            row[name] = float(np.median(cell.number(name)))
        for name in NUMBERS[:2]:
            row |= bootstrap(median, cell.number(name)).named(name)
        rows.append(row)
    table = pd.DataFrame(rows)
    order = table.sort_values("accuracy", ascending=False, kind="stable")
    table["best"] = ~order.duplicated(["method", *CELL]).reindex(table.index)
    return table


def curves(of: Sequence[Cell]) -> pd.DataFrame:
    """The center's accuracy over simulated time, median and interval over seeds.

    A measurement is valid until the next one; before the first, the accuracy is 0.
    """
    frames = []
    for cell in of:
        longest = max(record.series["seconds"][-1] for record in cell.records)
        times = np.linspace(0, longest, POINTS)
        rows = [_held(record, times) for record in cell.records]
        columns = bootstrap(median, np.array(rows)).columns("median")
        frames.append(pd.DataFrame({**cell.labels, "seconds": times, **columns}))
    return pd.concat(frames, ignore_index=True)


def _held(record: Record, times: Floats) -> Floats:
    """Return the last accuracy measured before each of the times."""
    seconds = np.asarray(record.series["seconds"], float)
    accuracy = np.array([0.0, *record.series["accuracy"]])
    return accuracy[np.searchsorted(seconds, times, side="right")]
