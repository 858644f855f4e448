"""The finding of a benchmark: effects with intervals and verdicts, from its files."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pandas as pd

from harness.bench.declare import Benchmark, Row
from harness.judgement.finding import Finding, age_of, joined
from harness.records.files import RESULTS, folder
from harness.records.record import Code, Record, digest
from harness.statistics import t_interval
from harness.timing import low_quantile

PROCESSES = 6
"""Number of measuring processes that a verdict needs."""

FASTER, SLOWER, SAME, UNDECIDED = "faster", "slower", "as fast", "undecided"
"""Verdicts on a ratio of ours to a peer."""

ALIKE = 1.05
"""Within this factor of 1, two times are the same."""

MICROSECONDS = 1e6

CPU, GPU = "cpu", "cuda"
"""The devices of which a page has rows. Verdicts are for the CPU."""

Measured: TypeAlias = Mapping[tuple[str, str], Sequence[Record]]
"""(backend, setup id) -> the last record of each process of the last measurement."""

Times: TypeAlias = Mapping[str, Sequence[float]]
"""Name of a variant -> its times in one process, in seconds."""


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


# -- files -----------------------------------------------------------------------------


def read(home: Path, backend: str) -> list[Record]:
    """Return the measurements of a backend in a folder, in the order of their start."""
    records = []
    for path in sorted(home.glob(f"*-{backend}-*.json")):
        content = json.loads(path.read_text("utf-8"))
        about = content["machine_info"]
        for entry in content["benchmarks"]:
            info = dict(entry["extra_info"])
            experiment, _, identifier = info.pop("setup").partition("/")
            record = Record(
                experiment=experiment,
                id=identifier,
                subject=about["subject"],
                environment=digest(about["environment"], 8),
                series=info.pop("seconds"),
                code=Code(**info.pop("code")),
                seed=0,
                status="ok",
                reason="",
                summary={},
                **info,
            )
            records.append(record)
    return records


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


# -- effects and verdicts --------------------------------------------------------------


class Effect(NamedTuple):
    """The cost of an arm: a ratio, or microseconds per step.

    ``low`` and ``high`` are the interval over processes; NaN for a single one.
    """

    value: float
    low: float
    high: float
    processes: int


def effect_of(row: Row, processes: Sequence[Times]) -> Effect:
    """Return the effect of a row: one value per process, and a t interval over them.

    Ratios and times are averaged as logarithms. Differences may be negative, so they
    are averaged directly.
    """
    values = [value_of(row, times) for times in processes]
    if row.measure == "difference":
        value, low, high = map(float, t_interval(values))
    else:
        logs = [math.log(value) for value in values]
        value, low, high = map(math.exp, t_interval(logs))
    return Effect(value, low, high, len(values))


def value_of(row: Row, times: Times) -> float:
    """Return the value of a process, from the tenth percentiles of its rounds."""
    arm = low_quantile(times[row.arm])
    if row.measure == "time":
        return arm * MICROSECONDS
    peer = low_quantile(times[row.peer])
    return arm / peer if row.measure == "ratio" else (arm - peer) * MICROSECONDS


def verdict(row: Row, effect: Effect, control: Effect | None) -> str:
    """Return whether ours is faster, slower, as fast or undecided; only for ratios.

    ``control`` is the effect of a variant of the same setup against itself. Faster: the
    whole interval is below 1 and below the control's; slower: above both. As fast:
    within 5 % of 1. The text is empty for controls and with too few processes.
    """
    if row.measure != "ratio" or row.control or effect.processes < PROCESSES:
        return ""
    low, high = (1.0, 1.0) if control is None else (control.low, control.high)
    if effect.high < min(low, 1):
        return FASTER
    if effect.low > max(high, 1):
        return SLOWER
    return SAME if 1 / ALIKE < effect.low and effect.high < ALIKE else UNDECIDED


def effects(benchmark: Benchmark, records: Measured) -> list[tuple[Row, Effect]]:
    """Return the rows whose variants were all measured, with their effects."""
    pairs = []
    for row in benchmark.rows:
        times = [
            record.series
            for record in records.get((row.backend, row.setup_id), [])
            if {*row.variants} <= {*record.series}
        ]
        if times:
            pairs.append((row, effect_of(row, times)))
    return pairs


# -- the finding -----------------------------------------------------------------------


def judge(benchmark: Benchmark, home: Path) -> Finding | None:
    """Judge the last measurement in a folder. Return None if there is none."""
    on_cpu, on_gpu = (measured(benchmark, home, device) for device in (CPU, GPU))
    if not on_cpu and not on_gpu:
        return None
    pairs = effects(benchmark, on_cpu)
    rows, present = table(benchmark, pairs), [row for row, _ in pairs]
    tables = {
        "rows": rows,
        "on a GPU": _gpu_table(benchmark, on_gpu),
        "goals": _goals(rows, present),
    }
    everything = [r for of in (on_cpu, on_gpu) for same in of.values() for r in same]
    return Finding(
        experiment=benchmark.name,
        task=benchmark.task,
        title=benchmark.title,
        question=benchmark.question,
        answer=_answer(benchmark, rows, present),
        verdict=_counts(rows),
        tables={name: table for name, table in tables.items() if len(table)},
        small_print=[
            *benchmark.notes,
            *_small_print(everything),
            *([controls_line(rows)] if len(rows) else []),
        ],
        missing=[
            f"{row.backend}: {row.what}: not measured yet."
            for row in benchmark.row
            if row not in present
        ],
        provenance=_provenance({**on_gpu, **on_cpu}),
        age=age_of([record for same in on_cpu.values() for record in same]),
    )


def table(benchmark: Benchmark, pairs: Sequence[tuple[Row, Effect]]) -> pd.DataFrame:
    """Return the rows of the table; those of controls are the last ones."""
    controls = {(r.backend, r.setup_id): effect for r, effect in pairs if r.control}
    return pd.DataFrame(
        {
            "backend": row.backend,
            "what": row.what,
            "against": benchmark.peers.get(row.peer, ""),
            "measure": row.measure,
            "value": effect.value,
            "low": effect.low,
            "high": effect.high,
            "unit": "" if row.measure == "ratio" else "us",
            "verdict": verdict(row, effect, controls.get((row.backend, row.setup_id))),
            "processes": effect.processes,
            "control": row.control,
        }
        for row, effect in pairs
    )


def _gpu_table(benchmark: Benchmark, records: Measured) -> pd.DataFrame:
    """Return the rows that were measured on a GPU, without verdicts and controls."""
    pairs = [each for each in effects(benchmark, records) if not each[0].control]
    rows = table(benchmark, pairs).drop(columns=["verdict", "control"], errors="ignore")
    subjects = [records[row.backend, row.setup_id][0].subject for row, _ in pairs]
    rows.insert(0, "device", [s.get("device_name", s["device"]) for s in subjects])
    return rows


def _goals(rows: pd.DataFrame, present: Sequence[Row]) -> pd.DataFrame:
    """Return what we aim at, and what is reached: a table for contributors."""
    goals = rows.assign(goal=pd.Series([row.goal for row in present], dtype=float))
    goals = goals.rename(columns={"value": "reached"}).dropna(subset="goal")
    columns = ["backend", "what", "against", "unit", "goal", "reached"]
    return goals.reindex(columns=columns).reset_index(drop=True)


def _answer(benchmark: Benchmark, rows: pd.DataFrame, present: Sequence[Row]) -> str:
    """Return the most important values as a sentence."""
    parts = [
        f"{written(entry)}{' times' if row.measure == 'ratio' else ''} {row.headline}"
        for row, entry in zip(present, rows.to_dict("records"), strict=True)
        if row.headline
    ]
    if not parts:
        return "Not measured on a CPU yet."
    return f"{benchmark.answer.format(joined(parts))}."


def _counts(rows: pd.DataFrame) -> str:
    """Return how many rows are faster, slower and so on: ``3 faster, 1 slower``."""
    if rows.empty:
        return ""
    counts = Counter(rows["verdict"])
    # If most rows are microseconds, which have no verdict, it would mislead.
    if (rows["unit"] != "").sum() > (rows["verdict"] != "").sum():
        return ""
    kinds = (FASTER, SAME, SLOWER, UNDECIDED)
    return ", ".join(f"{counts[kind]} {kind}" for kind in kinds if counts[kind])


def _small_print(records: Sequence[Record]) -> Iterator[str]:
    rounds = {len(times) for record in records for times in record.series.values()}
    setups = Counter((r.subject["backend"], r.subject["device"], r.id) for r in records)
    yield (
        f"Variants take turns in random order within each of {_or(rounds)} rounds of a "
        "process with one thread. The value of a process is the ratio (or difference) "
        "of tenth percentiles over its rounds."
    )
    yield (
        f"{_or(set(setups.values()))} processes; the interval is that of Student's t "
        "over them (95%). Ours is called faster if the whole interval is below 1 and "
        "below that of the setup's control, slower if it is above both, as fast if it "
        f"is within 5% of 1, else undecided; from {PROCESSES} processes on."
    )
    yield "Absolute times hold for this machine only; the ratios may hold elsewhere."


def _or(numbers: set[int]) -> str:
    return " or ".join(map(str, sorted(numbers)))


def _provenance(records: Measured) -> dict[str, Any]:
    everything = [record for same in records.values() for record in same]
    subjects = {tuple(sorted(record.subject.items())) for record in everything}
    return {
        "backends": sorted({backend for backend, _ in records}),
        "subjects": [dict(subject) for subject in sorted(subjects)],
    }


def controls_line(rows: pd.DataFrame) -> str:
    """Return a sentence: how many intervals of the controls contain 1."""
    known = rows[rows["control"] & rows["low"].notna()]
    if known.empty:
        return "No control, which compares a variant with itself, has an interval yet."
    hold = int(((known["low"] <= 1) & (known["high"] >= 1)).sum())
    return (
        "Controls compare a variant with itself, so their ratio should be 1: "
        f"{hold} of {len(known)} of their 95% intervals contain 1."
    )


def written(entry: Mapping[Any, Any]) -> str:
    """Format an effect with its interval and unit: ``0.74 [0.72, 0.76]``."""
    value, low, high = (short(entry[name]) for name in ("value", "low", "high"))
    interval = "" if math.isnan(entry["low"]) else f" [{low}, {high}]"
    unit = f" {entry['unit']}" if entry["unit"] else ""
    return f"{value}{interval}{unit}"


def short(value: float) -> str:
    """Format a value with two decimals, or two digits if it is small or large."""
    if abs(value) >= 10:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"
