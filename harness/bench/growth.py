"""How fast a cost grows: the exponent of a power law fitted to the points of a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.bench.declare import Benchmark, Row
from harness.bench.judge import LEVEL, value_of
from harness.records.record import Record
from harness.statistics import t_interval

SPAN = 10
"""Smallest ratio of the last point to the first for which an exponent is fitted."""


def exponents(
    benchmark: Benchmark, records: Mapping[tuple[str, str], Sequence[Record]]
) -> pd.DataFrame:
    """Return the exponent e of each line, with Student's t interval over processes.

    It is the least-squares slope of ``log(value) = e log(x) + c``, fitted for each
    process that measured all points. 0 is constant, 1 is proportional. Differences have
    no exponent, since they may be negative. Lines whose points are close together or
    include zero have none either.
    """
    return pd.DataFrame(
        entry
        for line in _lines(benchmark)
        if (entry := _entry(benchmark, line, records)) is not None
    )


def sentence_on(table: pd.DataFrame) -> str:
    """Return the exponents as a sentence, or an empty text if there are none."""
    parts = [
        f"{row['exponent']:.2f} [{row['low']:.2f}, {row['high']:.2f}] "
        f"over {row['growth']} on {row['backend']}"
        for _, row in table.iterrows()
    ]
    if not parts:
        return ""
    return (
        "The exponent of a power law through the points (0: flat, 1: in proportion) is "
        f"{', '.join(parts)}."
    )


def _lines(benchmark: Benchmark) -> Iterator[list[Row]]:
    """Yield the rows of each line whose x grows by a factor of `SPAN` or more."""
    lines: dict[tuple[str, ...], list[Row]] = {}
    for row in benchmark.rows:
        if row.growth and row.measure != "difference":
            key = (row.growth, row.backend, row.what, row.arm, row.peer)
            lines.setdefault(key, []).append(row)
    for line in lines.values():
        places = _places(line)
        if min(places) > 0 and max(places) >= SPAN * min(places):
            yield line


def _places(line: Sequence[Row]) -> list[float]:
    """Return the x of each point."""
    return [row.x for row in line if row.x is not None]


def _entry(
    benchmark: Benchmark,
    line: Sequence[Row],
    records: Mapping[tuple[str, str], Sequence[Record]],
) -> dict[str, Any] | None:
    """Return a row of the table, or None with fewer than two processes."""
    slopes = [_slope(line, times) for times in _complete(line, records)]
    if len(slopes) < 2:
        return None
    interval = t_interval(slopes, LEVEL)
    first = line[0]
    places = _places(line)
    return {
        "growth": first.growth,
        "backend": first.backend,
        "what": first.what,
        "against": benchmark.peers[first.peer] if first.peer else "",
        "measure": first.measure,
        "from": min(places),
        "to": max(places),
        "exponent": float(interval.estimate),
        "low": float(interval.low),
        "high": float(interval.high),
        "processes": len(slopes),
    }


def _complete(
    line: Sequence[Row], records: Mapping[tuple[str, str], Sequence[Record]]
) -> Iterator[list[Mapping[str, Sequence[float]]]]:
    """Yield the times of each process that measured all points, in points' order."""
    points = [
        {
            record.process or 0: record.series
            for record in records.get((row.backend, row.setup_id), [])
            if {*row.variants} <= {*record.series}
        }
        for row in line
    ]
    for process in sorted(set.intersection(*(set(point) for point in points))):
        yield [point[process] for point in points]


def _slope(
    line: Sequence[Row], times: Sequence[Mapping[str, Sequence[float]]]
) -> float:
    values = [value_of(row, each) for row, each in zip(line, times, strict=True)]
    return float(np.polyfit(np.log(_places(line)), np.log(values), 1)[0])
