"""From recorded times to a finding: ratios with intervals, beside their goals."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.bench.declare import Benchmark, Row
from harness.finding import Finding
from harness.records.files import RESULTS, folder, read
from harness.records.record import Record
from harness.timing import low_quantile, ratio_interval

__all__ = ["compare", "short"]

Measured = Mapping[tuple[str, str], Record]
"""(backend, setup id) -> the last record of it."""


def compare(benchmark: Benchmark, root: Path = RESULTS) -> Finding | None:
    """Judge the published times of a benchmark, and a user's own beside them.

    None if there are neither. If only a user's own exist, the finding is theirs.
    """
    published = _judge(benchmark, folder(benchmark.name, True, root))
    local = _judge(benchmark, folder(benchmark.name, False, root))
    if published is None or local is None:
        return published or local
    return dataclasses.replace(published, local=local)


def _judge(benchmark: Benchmark, home: Path) -> Finding | None:
    measured: Measured = {
        (record.subject["backend"], record.id): record
        for backend in benchmark.backends
        for record in read(home / f"{backend}.jsonl")
    }
    if not measured:
        return None
    rows = [row for row in benchmark.rows if (row.backend, row.setup_id) in measured]
    judged = [
        _ratio(row, measured[row.backend, row.setup_id], benchmark.peers[row.peer])
        for row in rows
    ]
    ratios = pd.DataFrame(judged)
    missed = [row for row, entry in zip(rows, judged, strict=True) if _misses(entry)]
    goals = sum(row.goal is not None for row in rows)
    met = goals - len(missed)
    return Finding(
        experiment=benchmark.name,
        task=benchmark.task,
        title=benchmark.title,
        question=benchmark.question,
        answer=_answer(benchmark, rows, judged, f"{met} of {goals} goals are met"),
        verdict=f"{met} of {goals} goals met",
        tables={"ratios": ratios, "times": _times(measured)},
        small_print=[*benchmark.notes, *_small_print(measured), *map(_why, missed)],
        missing=_missing(benchmark, measured),
        provenance=_provenance(measured),
    )


def short(ratio: float) -> str:
    """Write a ratio to two decimals, or to two digits where it is small."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def _ratio(row: Row, record: Record, against: str) -> dict[str, Any]:
    ours, peer = record.series["ours"], record.series[row.peer]
    ratio, low, high = ratio_interval(ours, peer)
    return {
        "host": row.backend,
        "what": row.what,
        "peer": row.peer,
        "against": against,
        "ours_ms": 1e3 * low_quantile(ours),
        "peer_ms": 1e3 * low_quantile(peer),
        "ratio": ratio,
        "low": low,
        "high": high,
        "goal": np.nan if row.goal is None else row.goal,
    }


def _misses(entry: Mapping[str, Any]) -> bool:
    """Say whether a ratio is above its goal; without a goal it is not."""
    return bool(entry["ratio"] > entry["goal"])


def _times(measured: Measured) -> pd.DataFrame:
    """Return every variant's times in milliseconds, setup by setup."""
    return pd.DataFrame(
        {
            "host": backend,
            **record.config,
            "variant": variant,
            "tenth_percentile_ms": 1e3 * low_quantile(seconds),
            "median_ms": 1e3 * float(np.median(seconds)),
            "rounds": len(seconds),
        }
        for (backend, _), record in measured.items()
        for variant, seconds in record.series.items()
    )


def _answer(
    benchmark: Benchmark, rows: Sequence[Row], judged: Sequence[Any], goals: str
) -> str:
    """Say the ratios that matter most, and how many goals are met."""
    parts = [
        f"{short(entry['ratio'])} times {row.headline}"
        for row, entry in zip(rows, judged, strict=True)
        if row.headline
    ]
    if not parts:
        return f"{goals}."
    return f"{benchmark.answer.format(' and '.join(parts))}; {goals}."


def _small_print(measured: Measured) -> list[str]:
    rounds = {len(record.series["ours"]) for record in measured.values()}
    counts = " or ".join(str(count) for count in sorted(rounds))
    return [
        f"Variants take turns in random order within each of {counts} rounds, in one "
        "process with one thread; a time is the tenth percentile over the rounds, a "
        "ratio one of these over another, its interval a bootstrap over rounds (95 %).",
        "Absolute times say nothing about another machine; the ratios may.",
    ]


def _why(row: Row) -> str:
    """Say what stands in the way of a goal that is missed, if that is known."""
    missed = f"Goal missed on {row.backend} ({row.what}, against {row.peer})"
    return f"{missed}: {row.limit}." if row.limit else f"{missed}."


def _missing(benchmark: Benchmark, measured: Measured) -> list[str]:
    return [
        f"{row.backend}: {row.what}: not measured yet."
        for row in benchmark.rows
        if (row.backend, row.setup_id) not in measured
    ]


def _provenance(measured: Measured) -> dict[str, Any]:
    subjects = {tuple(sorted(r.subject.items())) for r in measured.values()}
    return {
        "backends": sorted({backend for backend, _ in measured}),
        "subjects": [dict(subject) for subject in sorted(subjects)],
    }
