"""The tables of the experiment, each a function of records alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from harness.record import Record
from harness.stats import Floats, bootstrap, median
from harness.tasks.policy_digits import laws
from harness.tasks.policy_digits.settings import Settings

__all__ = ["Cell", "cells", "curves", "hosts", "losses", "peaks", "schedules"]

POINTS = 201
"""Points of a drawn schedule."""


@dataclass(frozen=True)
class Cell:
    """The runs that differ in nothing but their seed, on one host.

    ``host`` is the backend, and its device where that is not the CPU.
    """

    host: str
    settings: Settings
    records: Sequence[Record]

    @property
    def labels(self) -> dict[str, Any]:
        """The columns that name the cell in every table."""
        mode = self.settings.mode
        return {"schedule": self.settings.label, "mode": mode, "host": self.host}

    def column(self, name: str) -> Floats:
        """Return a series of all runs, [seeds, checkpoints]; infinite once diverged."""
        length = self.settings.checkpoints + 1
        rows = [np.asarray(record.series[name], float) for record in self.records]
        padded = [np.pad(r, (0, length - len(r)), constant_values=np.inf) for r in rows]
        return np.where(np.isnan(padded), np.inf, padded)


def cells(records: Sequence[Record]) -> list[Cell]:
    """Group records that differ in nothing but their seed, in order of appearance."""
    groups: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.seed):
        groups.setdefault(f"{_host(record)} {record.config}", []).append(record)
    return [
        Cell(_host(group[0]), Settings(**group[0].config), group)
        for group in groups.values()
    ]


def schedules(of: Sequence[Cell]) -> pd.DataFrame:
    """The rate of the reference over the steps, at 201 of them."""
    frames = []
    for cell in (cell for cell in of if cell.host == of[0].host):
        settings = cell.settings
        steps = np.unique(np.linspace(0, settings.steps, POINTS).round())
        labels = {"schedule": settings.label, "mode": settings.mode}
        rates = laws.rates(settings, steps)
        frames.append(pd.DataFrame({**labels, "step": steps, "rate": rates}))
    return pd.concat(frames, ignore_index=True)


def peaks(of: Sequence[Cell]) -> pd.DataFrame:
    """The rates that hosts wrote, as multiples of the one asked for.

    ``peak`` and ``at``, the share of the run where it lies; ``law`` in closed form;
    ``first``, ``middle`` and ``last`` at the first, the middle and the step after the
    last.
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
        columns = dict(zip(("loss", "low", "high"), interval, strict=True))
        rows.append({**cell.labels, **columns, "seeds": len(cell.records)})
    return pd.DataFrame(rows)


def curves(of: Sequence[Cell]) -> pd.DataFrame:
    """Held-out loss over the steps: median over the seeds with its interval."""
    frames = []
    for cell in of:
        interval = bootstrap(median, cell.column("loss"))
        columns = dict(zip(("median", "low", "high"), interval, strict=True))
        steps = cell.settings.measured_at
        frames.append(pd.DataFrame({**cell.labels, "step": steps, **columns}))
    return pd.concat(frames, ignore_index=True)


def hosts(of: Sequence[Cell]) -> pd.DataFrame:
    """How far two hosts are apart on the same seeds: largest relative differences.

    ``rate`` at the checkpoints, ``loss`` at the end of each run.
    """
    rows = []
    for first, other in _twins(of):
        pairs = zip(first.records, other.records, strict=True)
        gaps = [
            [_gap(a.series["rate"], b.series["rate"]) for a, b in pairs],
            [_gap(first.column("loss")[:, -1], other.column("loss")[:, -1])],
        ]
        rate, loss = (max(gap) for gap in gaps)
        labels = {**other.labels, "against": first.host}
        rows.append({**labels, "rate": rate, "loss": loss})
    columns = ["schedule", "mode", "host", "against", "rate", "loss"]
    return pd.DataFrame(rows, columns=columns)


def _gap(a: Any, b: Any) -> float:
    """Return the largest of |a - b| / max(|a|, |b|), 0 where they are equal."""
    first, second = np.asarray(a, float), np.asarray(b, float)
    different = first != second
    size = np.maximum(np.abs(first), np.abs(second))[different]
    return float(np.max(np.abs(first - second)[different] / size, initial=0.0))


def _twins(of: Sequence[Cell]) -> Iterator[tuple[Cell, Cell]]:
    """Pair the cells of the first host with the same cells elsewhere, by seed."""
    for a, b in product(of, of):
        common = {r.seed for r in a.records} & {r.seed for r in b.records}
        if a.host == of[0].host != b.host and a.settings == b.settings and common:
            kept = [[r for r in c.records if r.seed in common] for c in (a, b)]
            yield replace(a, records=kept[0]), replace(b, records=kept[1])


def _host(record: Record) -> str:
    backend, device = record.subject["backend"], record.subject["device"]
    return backend if device == "cpu" else f"{backend} on {device}"
