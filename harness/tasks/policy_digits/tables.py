"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.statistics import bootstrap, median, relative_gap
from harness.tasks.cells import SeedCell, backend_of, grouped, twins
from harness.tasks.policy_digits import laws
from harness.tasks.policy_digits.settings import Settings

__all__ = ["Cell", "backends", "cells", "curves", "losses", "peaks", "schedules"]

POINTS = 201
"""The number of points of a drawn schedule."""


@dataclass(frozen=True)
class Cell(SeedCell[Settings]):
    """The runs that differ only in their seed, on one backend and device."""

    @property
    def labels(self) -> dict[str, Any]:
        """The columns that name the cell in every table."""
        mode = self.settings.mode
        return {"schedule": self.settings.label, "mode": mode, "backend": self.backend}


def cells(records: Sequence[Record]) -> list[Cell]:
    """Group records that differ only in their seed, in order of appearance."""
    return [
        Cell(backend_of(group[0]), Settings(**group[0].config), group)
        for group in grouped(records)
    ]


def schedules(of: Sequence[Cell]) -> pd.DataFrame:
    """The rate of the reference at 201 steps."""
    frames = []
    for cell in (cell for cell in of if cell.backend == of[0].backend):
        settings = cell.settings
        steps = np.unique(np.linspace(0, settings.steps, POINTS).round())
        labels = {"schedule": settings.label, "mode": settings.mode}
        rates = laws.rates(settings, steps)
        frames.append(pd.DataFrame({**labels, "step": steps, "rate": rates}))
    return pd.concat(frames, ignore_index=True)


def peaks(of: Sequence[Cell]) -> pd.DataFrame:
    """The rates that each backend wrote, as multiples of ``settings.rate``.

    ``peak``, and its position ``at`` as a share of the run; ``law``, the peak in closed
    form; ``first``, ``middle`` and ``last``, the rates at the first step, at the middle
    one and at the step after the last.
    """
    rows = []
    for cell in of:
        settings, record = cell.settings, cell.records[0]
        written = np.asarray(record.series["rate"]) / settings.rate
        rows.append(
            {
                **cell.labels,
                "peak": record.summary.get("peak", np.nan) / settings.rate,
                "law": laws.peak(settings),
                "at": record.summary.get("peak_step", np.nan) / settings.steps,
                "first": written[0],
                "middle": written[len(written) // 2],
                "last": written[-1],
            }
        )
    return pd.DataFrame(rows)


def losses(of: Sequence[Cell]) -> pd.DataFrame:
    """Held-out loss at the end: median over the seeds with its interval."""
    rows = []
    for cell in of:
        interval = bootstrap(median, cell.column("loss")[:, -1])
        columns = interval.columns("loss")
        rows.append({**cell.labels, **columns, "seeds": len(cell.records)})
    return pd.DataFrame(rows)


def curves(of: Sequence[Cell]) -> pd.DataFrame:
    """Held-out loss over the steps: median over the seeds with its interval."""
    frames = []
    for cell in of:
        interval = bootstrap(median, cell.column("loss"))
        columns = interval.columns("median")
        steps = cell.settings.measured_at
        frames.append(pd.DataFrame({**cell.labels, "step": steps, **columns}))
    return pd.concat(frames, ignore_index=True)


def backends(of: Sequence[Cell]) -> pd.DataFrame:
    """The largest relative differences of two backends on the same seeds.

    ``rate`` at the checkpoints, ``loss`` at the end of each run.
    """
    rows = []
    for first, other in twins(of):
        pairs = zip(first.records, other.records, strict=True)
        gaps = [
            [_gap(a.series["rate"], b.series["rate"]) for a, b in pairs],
            [_gap(first.column("loss")[:, -1], other.column("loss")[:, -1])],
        ]
        rate, loss = (max(gap) for gap in gaps)
        labels = {**other.labels, "against": first.backend}
        rows.append({**labels, "rate": rate, "loss": loss})
    columns = ["schedule", "mode", "backend", "against", "rate", "loss"]
    return pd.DataFrame(rows, columns=columns)


def _gap(a: Any, b: Any) -> float:
    """Return the largest relative difference; 0 without values."""
    return float(np.max(relative_gap(a, b), initial=0.0))
