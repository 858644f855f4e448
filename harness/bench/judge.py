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
