"""Compute an effect with its interval and a verdict from the times of processes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from harness.bench.declare import Row
from harness.statistics import t_interval
from harness.timing import low_quantile

__all__ = [
    "LEVEL",
    "PROCESSES",
    "Effect",
    "Times",
    "effect_of",
    "value_of",
    "verdict",
]

PROCESSES = 6
"""Number of measuring processes that a verdict needs."""

LEVEL = 0.95
"""Level of the intervals."""

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


def verdict(row: Row, effect: Effect) -> str:
    """Return ``met``, ``missed`` or ``undecided``.

    Met: the whole interval is at or below the goal. Missed: it is above. The text is
    empty without a goal or with too few processes.
    """
    if row.goal is None or effect.processes < PROCESSES:
        return ""
    if effect.high <= row.goal:
        return "met"
    return "missed" if effect.low > row.goal else "undecided"


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
