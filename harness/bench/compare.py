"""Turn recorded times into a finding: a table of effects with verdicts."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from harness.bench.declare import Benchmark, Row
from harness.bench.process import read
from harness.judgement.finding import Finding, age_of
from harness.records.files import RESULTS, folder
from harness.records.record import Record
from harness.statistics import t_interval
from harness.timing import low_quantile

Measured = Mapping[tuple[str, str], Sequence[Record]]
"""(backend, setup id) -> the last record of each process of the last measurement."""

CPU, GPU = "cpu", "cuda"
"""The devices of which a page has rows. Verdicts are for the CPU."""

UNITS = {"ratio": "", "difference": "us", "time": "us"}
"""Unit of each measure. Ratios have none."""


def compare(benchmark: Benchmark, root: Path = RESULTS) -> Finding | None:
    """Judge the published times of a benchmark, and the user's own times.

    Return None if there are neither. If only the user's own times exist, return their
    finding.
    """
    published = judge(benchmark, folder(benchmark.name, True, root))
    local = judge(benchmark, folder(benchmark.name, False, root))
    if published is None or local is None:
        return published or local
    return dataclasses.replace(published, local=local)


def measured(benchmark: Benchmark, home: Path, device: str = CPU) -> Measured:
    """Read the last measurement of each setup on a device: one record per process.

    All records of a measurement have the same scale and environment. The last record of
    a setup belongs to its last measurement.
    """
    chosen: dict[tuple[str, str], dict[int, Record]] = {}
    kinds: dict[tuple[str, str], Any] = {}
    for backend in benchmark.backends:
        for record in read(home, backend):
            if record.subject["device"] != device:
                continue
            key = backend, record.id
            kind = record.scale, record.environment
            same = chosen.get(key, {}) if kinds.get(key) == kind else {}
            chosen[key] = {**same, record.process or 0: record}
            kinds[key] = kind
    return {key: list(same.values()) for key, same in chosen.items()}


def short(value: float) -> str:
    """Format a value with two decimals, or two digits if it is small or large."""
    if abs(value) >= 10:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def written(entry: Mapping[str, Any]) -> str:
    """Format an effect with its interval and unit: ``0.74 [0.72, 0.76]``."""
    unit = f" {entry['unit']}" if entry["unit"] else ""
    if math.isnan(entry["low"]):
        return f"{short(entry['value'])}{unit}"
    return (
        f"{short(entry['value'])} [{short(entry['low'])}, {short(entry['high'])}]{unit}"
    )


def controls_line(table: pd.DataFrame) -> str:
    """Return a sentence: how many intervals of the controls contain 1."""
    known = table[table["control"] & table["low"].notna()]
    if known.empty:
        return "No control, which compares a variant with itself, has an interval yet."
    hold = int(((known["low"] <= 1) & (known["high"] >= 1)).sum())
    return (
        "Controls compare a variant with itself, so their ratio should be 1: "
        f"{hold} of {len(known)} of their 95% intervals contain 1."
    )


def judge(benchmark: Benchmark, home: Path) -> Finding | None:
    """Judge the last measurement in a folder. Return None if there is none."""
    records, on_gpu = (measured(benchmark, home, device) for device in (CPU, GPU))
    if not records and not on_gpu:
        return None
    controls = {
        (row.backend, row.setup_id): effect
        for row in benchmark.rows
        if row.control and (effect := _effect(row, records)) is not None
    }
    judged = [
        (row, _entry(benchmark, row, records, controls)) for row in benchmark.rows
    ]
    present = [(row, entry) for row, entry in judged if entry is not None]
    rows = pd.DataFrame([entry for row, entry in present])
    tables = {
        "rows": rows,
        "on a GPU": _on_gpu(benchmark, on_gpu),
        "goals": _goals(present),
    }
    return Finding(
        experiment=benchmark.name,
        task=benchmark.task,
        title=benchmark.title,
        question=benchmark.question,
        answer=_answer(benchmark, present),
        verdict=_counts([entry for row, entry in present]),
        tables={name: table for name, table in tables.items() if len(table)},
        small_print=[
            *benchmark.notes,
            *_small_print(
                [r for m in (records, on_gpu) for s in m.values() for r in s]
            ),
            *([controls_line(rows)] if len(rows) else []),
        ],
        missing=[
            f"{row.backend}: {row.what}: not measured yet."
            for row, entry in judged
            if entry is None and not row.control
        ],
        provenance=_provenance({**on_gpu, **records}),
        age=age_of([record for same in records.values() for record in same]),
    )


def _on_gpu(benchmark: Benchmark, records: Measured) -> pd.DataFrame:
    """Return the rows that were measured on a GPU, without verdicts and controls."""
    entries = []
    for row in benchmark.rows:
        entry = _entry(benchmark, row, records, {})
        if entry is not None and not row.control:
            first = records[row.backend, row.setup_id][0]
            device = first.subject.get("device_name", first.subject["device"])
            entries.append({"device": device, **entry})
    return pd.DataFrame(entries).drop(columns=["verdict", "control"], errors="ignore")


def _effect(row: Row, records: Measured) -> Effect | None:
    """Return the effect of a row, or None if one of its variants was not measured."""
    times = [
        record.series
        for record in records.get((row.backend, row.setup_id), [])
        if set(row.variants) <= set(record.series)
    ]
    return effect_of(row, times) if times else None


def _entry(
    benchmark: Benchmark,
    row: Row,
    records: Measured,
    controls: Mapping[tuple[str, str], Effect],
) -> dict[str, Any] | None:
    """Return a row of the table, or None if it was not measured."""
    effect = _effect(row, records)
    if effect is None:
        return None
    return {
        "backend": row.backend,
        "what": row.what,
        "against": benchmark.peers[row.peer] if row.peer else "",
        "measure": row.measure,
        "value": effect.value,
        "low": effect.low,
        "high": effect.high,
        "unit": UNITS[row.measure],
        "verdict": verdict(row, effect, controls.get((row.backend, row.setup_id))),
        "processes": effect.processes,
        "control": row.control,
    }


def _goals(present: Sequence[tuple[Row, Mapping[str, Any]]]) -> pd.DataFrame:
    """Return what we aim at, and what is reached: a table for contributors."""
    return pd.DataFrame(
        {
            "backend": row.backend,
            "what": row.what,
            "against": entry["against"],
            "unit": entry["unit"],
            "goal": row.goal,
            "reached": entry["value"],
        }
        for row, entry in present
        if row.goal is not None
    )


def _counts(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return how many rows are faster, slower and so on: ``3 faster, 1 slower``."""
    verdicts = [entry["verdict"] for entry in entries]
    # If most rows are microseconds, which have no verdict, it would mislead.
    if sum(entry["unit"] != "" for entry in entries) > sum(map(bool, verdicts)):
        return ""
    kinds = [kind for kind in (FASTER, SAME, SLOWER, UNDECIDED) if kind in verdicts]
    return ", ".join(f"{verdicts.count(kind)} {kind}" for kind in kinds)


def _answer(
    benchmark: Benchmark, present: Sequence[tuple[Row, Mapping[str, Any]]]
) -> str:
    """Return the most important values as a sentence."""
    parts = [
        f"{written(entry)}{' times' if row.measure == 'ratio' else ''} {row.headline}"
        for row, entry in present
        if row.headline
    ]
    if not parts:
        return "Not measured on a CPU yet."
    listed = ", ".join(parts[:-1]) + " and " * (len(parts) > 1) + parts[-1]
    return f"{benchmark.answer.format(listed)}."


def _small_print(records: Sequence[Record]) -> Iterator[str]:
    rounds = {len(times) for record in records for times in record.series.values()}
    counts = " or ".join(str(count) for count in sorted(rounds))
    setups = Counter((r.subject["backend"], r.subject["device"], r.id) for r in records)
    processes = sorted(set(setups.values()))
    yield (
        f"Variants take turns in random order within each of {counts} rounds of a "
        "process with one thread. The value of a process is the ratio (or difference) "
        "of tenth percentiles over its rounds."
    )
    yield (
        f"{' or '.join(map(str, processes))} processes; the interval is that of "
        "Student's t over them (95%). Ours is called faster if the whole interval is "
        "below 1 and below that of the setup's control, slower if it is above both, as "
        "fast if it is within 5% of 1, else undecided; from "
        f"{PROCESSES} processes on."
    )
    yield "Absolute times hold for this machine only; the ratios may hold elsewhere."


def _provenance(records: Measured) -> dict[str, Any]:
    everything = [record for same in records.values() for record in same]
    subjects = {tuple(sorted(record.subject.items())) for record in everything}
    return {
        "backends": sorted({backend for backend, _ in records}),
        "subjects": [dict(subject) for subject in sorted(subjects)],
    }


PROCESSES = 6
"""Number of measuring processes that a verdict needs."""

LEVEL = 0.95
"""Level of the intervals."""

FASTER, SLOWER, SAME, UNDECIDED = "faster", "slower", "as fast", "undecided"
"""Verdicts on a ratio of ours to a peer."""

ALIKE = 1.05
"""Within this factor of 1, two times are the same."""

MICROSECONDS = 1e6

Times: TypeAlias = Mapping[str, Sequence[float]]
"""Name of a variant -> its times in one process, in seconds."""


@dataclass(frozen=True)
class Effect:
    """The cost of an arm, over the processes that measured it.

    Attributes:
        value: the ratio, or microseconds per step.
        low: lower end of the interval; NaN for a single process.
        high: upper end of the interval; NaN for a single process.
        processes: number of processes that measured it.
    """

    value: float
    low: float
    high: float
    processes: int


def effect_of(row: Row, processes: Sequence[Times]) -> Effect:
    """Return the effect of a row: one value per process, and a t interval over them.

    A process' value is computed from the tenth percentiles of its rounds. Ratios and
    times are averaged as logarithms. Differences may be negative, so they are averaged
    directly.
    """
    values = [value_of(row, times) for times in processes]
    if row.measure == "difference":
        return Effect(*_mean(values), len(values))
    mean, low, high = _mean([math.log(value) for value in values])
    return Effect(math.exp(mean), math.exp(low), math.exp(high), len(values))


def verdict(row: Row, effect: Effect, again: Effect | None) -> str:
    """Return whether ours is faster, slower, as fast or undecided; only for ratios.

    ``again`` is the control of the same setup, a variant against itself. Faster: the
    whole interval is below 1 and below the control's; slower: above both. As fast:
    within 5 % of 1. The text is empty for controls and with too few processes.
    """
    if row.measure != "ratio" or row.control or effect.processes < PROCESSES:
        return ""
    low, high = (1.0, 1.0) if again is None else (again.low, again.high)
    if effect.high < min(low, 1):
        return FASTER
    if effect.low > max(high, 1):
        return SLOWER
    return SAME if 1 / ALIKE < effect.low and effect.high < ALIKE else UNDECIDED


def value_of(row: Row, times: Times) -> float:
    """Return the ratio, or the microseconds per step, that a process measured."""
    arm = low_quantile(times[row.arm])
    if row.measure == "time":
        return arm * MICROSECONDS
    peer = low_quantile(times[row.peer])
    if row.measure == "difference":
        return (arm - peer) * MICROSECONDS
    return arm / peer


def _mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its interval. The interval of one value is NaN."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, math.nan, math.nan
    interval = t_interval(values, LEVEL)
    return mean, float(interval.low), float(interval.high)
