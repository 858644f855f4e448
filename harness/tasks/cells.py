"""Select records, and group them into cells, whose runs differ only in their seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from harness.declarations.toml_files import leaves
from harness.records.record import Record
from harness.statistics import Floats, bootstrap, median, paired_effects


@dataclass(frozen=True)
class Cell:
    """The runs that differ only in their seed, on one backend and device.

    Attributes:
        backend: includes the device if it is not the CPU.
        settings: have ``measured_at``, the steps after which a run is measured.
        labels: the columns that name the cell in every table.
    """

    backend: str
    settings: Any
    records: Sequence[Record]
    labels: Mapping[str, Any]

    def column(self, name: str, diverged: float = np.inf) -> Floats:
        """Return a series of all runs, [seeds, checkpoints].

        NaN, and checkpoints after a run diverged, have the value ``diverged``.
        """
        length = len(self.settings.measured_at)
        rows = [np.asarray(record.series[name], float) for record in self.records]
        padded = [
            np.pad(row, (0, length - len(row)), constant_values=diverged)
            for row in rows
        ]
        series = np.array(padded, float).reshape(len(rows), length)
        return np.where(np.isnan(series), diverged, series)

    def end(self, name: str) -> Floats:
        """Return a series at the end, [seeds]; infinite if a run diverged."""
        return self.column(name)[:, -1]

    def last(self, name: str) -> Floats:
        """Return a value of each run's summary, [seeds]; NaN if it is missing."""
        numbers = [record.summary.get(name, np.nan) for record in self.records]
        return np.array(numbers, float)


def cells(
    records: Sequence[Record],
    settings: Callable[..., Any],
    label: Callable[[Any], Mapping[str, Any]],
) -> list[Cell]:
    """Group records that differ only in their seed, in order of appearance.

    ``label`` returns the columns that name a cell, beside its backend. If cells have
    the same name, the settings in which they differ are columns, too.
    """
    found: list[Cell] = []
    named: dict[str, Mapping[str, Any]] = {}
    differ: list[str] = []
    for group in by_config(records):
        config, backend = dict(leaves(group[0].config)), backend_of(group[0])
        of = settings(**group[0].config)
        labels = {**label(of), "backend": backend}
        found.append(Cell(backend, of, group, labels))
        first = named.setdefault(str(labels), config)
        differ += [n for n in {**first, **config} if first.get(n) != config.get(n)]
    if not differ:
        return found
    return [
        replace(cell, labels={**cell.labels, **_settings(cell, differ)})
        for cell in found
    ]


def _settings(cell: Cell, names: Iterable[str]) -> dict[str, Any]:
    """Return some settings of a cell, by their dotted paths."""
    config = dict(leaves(cell.records[0].config))
    return {name: config.get(name) for name in names}


def by_config(records: Sequence[Record]) -> list[list[Record]]:
    """Group records that differ only in their seed, in order of appearance."""
    groups: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.seed):
        groups.setdefault(f"{backend_of(record)} {record.config}", []).append(record)
    return list(groups.values())


def backend_of(record: Record) -> str:
    """Return the backend of a run, with its device if that is not the CPU."""
    backend, device = record.subject["backend"], record.subject["device"]
    return backend if device == "cpu" else f"{backend} on {device}"


def paired(a: Cell, b: Cell) -> tuple[Cell, Cell]:
    """Return two cells reduced to their common seeds."""
    common = {r.seed for r in a.records} & {r.seed for r in b.records}
    one, other = ([r for r in cell.records if r.seed in common] for cell in (a, b))
    return replace(a, records=one), replace(b, records=other)


def on_gpus(records: Sequence[Record]) -> list[Record]:
    """Return the records of runs on a GPU that ended well."""
    return [
        record
        for record in records
        if record.subject["device"].startswith("cuda") and record.status == "ok"
    ]


def interval(name: str, values: Any) -> dict[str, Any]:
    """Return the median as NAME, with NAME_low and NAME_high; NaN if a value is."""
    if not len(values) or np.isnan(values).any():
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"), np.nan)
    return bootstrap(median, values).named(name)


def ratio(name: str, one: Any, other: Any) -> dict[str, Any]:
    """Return the median of one / other, paired, as :func:`interval` does.

    Pairs with a NaN are left out; without any pair it is NaN.
    """
    known = ~(np.isnan(one) | np.isnan(other))
    effects: Any = []
    if known.any():
        pairs = np.asarray(one)[known], np.asarray(other)[known]
        effects = paired_effects(*pairs, "log ratio")
    return {key: float(np.exp(end)) for key, end in interval(name, effects).items()}


def ratio_to(base: Cell | None, cell: Cell, name: str) -> dict[str, Any]:
    """Return ``ratio`` = the end of a series / that of ``base``, paired by seed.

    NaN without a base.
    """
    if base is None:
        return ratio("ratio", [], [])
    one, other = paired(cell, base)
    return ratio("ratio", one.end(name), other.end(name))


QUIET = 3.0
"""The load of the machine below which the duration of a run is used."""

POINTS = 13
"""The most checkpoints of a cell in a table over the seconds."""


def duration_of_step(cell: Cell) -> float:
    """Return the seconds of a step; NaN without a run on a quiet machine.

    It is the median duration of these runs in equal parts for all steps. The start of a
    run and its measurements are in it.
    """
    durations = [
        run.duration
        for run in cell.records
        if run.status == "ok"
        and run.duration is not None
        and run.load is not None
        and run.load < QUIET
    ]
    if not durations:
        return np.nan
    return float(np.median(durations)) / float(cell.settings.measured_at[-1])


def over_time(
    of: Sequence[Cell],
    name: str,
    read: Callable[[Cell], Floats],
    seconds_of: Callable[[Cell], float] = duration_of_step,
) -> pd.DataFrame:
    """Return the median of a value, NAME, over the seconds of training.

    Args:
        read: returns the values of a cell, [seeds, checkpoints].
        seconds_of: returns the seconds of a step; a cell with NaN is left out.
    """
    frames = [pd.DataFrame()]
    for cell in of:
        seconds = seconds_of(cell)
        if np.isfinite(seconds):
            steps = np.array(cell.settings.measured_at)
            shown = np.linspace(0, len(steps) - 1, min(POINTS, len(steps)))
            places = shown.round().astype(int)
            columns = {"step": steps[places], "seconds": steps[places] * seconds}
            columns |= interval(name, read(cell)[:, places])
            frames.append(pd.DataFrame({**cell.labels, **columns}))
    return pd.concat(frames, ignore_index=True)
