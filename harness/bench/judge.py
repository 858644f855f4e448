"""From the times of several processes to an effect with its interval, and a verdict."""

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
"""How many measuring processes a verdict needs."""

LEVEL = 0.95
"""Of the intervals."""

MICROSECONDS = 1e6

Times: TypeAlias = Mapping[str, Sequence[float]]
"""Name of a variant -> its times in one process, in seconds."""


@dataclass(frozen=True)
class Effect:
    """What an arm costs, over the processes that measured it.

    Attributes:
        value: the ratio, or microseconds a step.
        low: end of the interval; NaN for a single process.
        high: the other end.
        processes: how many measured it.
    """

    value: float
    low: float
    high: float
    processes: int


def effect_of(row: Row, processes: Sequence[Times]) -> Effect:
    """Return the effect of a row: one value a process, a t interval over them.

    The value of a process is made of the tenth percentiles of its rounds. Ratios and
    times are averaged as logarithms; differences, which may be negative, as they are.
    """
    values = [value_of(row, times) for times in processes]
    if row.measure == "difference":
        return Effect(*_mean(values), len(values))
    mean, low, high = _mean([math.log(value) for value in values])
    return Effect(math.exp(mean), math.exp(low), math.exp(high), len(values))


def verdict(row: Row, effect: Effect) -> str:
    """Return ``met``, ``missed`` or ``undecided``; empty without a goal or too few.

    Met: the whole interval is at or below the goal. Missed: it is above.
    """
    if row.goal is None or effect.processes < PROCESSES:
        return ""
    if effect.high <= row.goal:
        return "met"
    return "missed" if effect.low > row.goal else "undecided"


def value_of(row: Row, times: Times) -> float:
    """Return the ratio, or the microseconds, that a process measured."""
    arm = low_quantile(times[row.arm])
    if row.measure == "time":
        return arm * MICROSECONDS
    peer = low_quantile(times[row.peer])
    if row.measure == "difference":
        return (arm - peer) * MICROSECONDS
    return arm / peer


def _mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean with its interval, which one process cannot give."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, math.nan, math.nan
    interval = t_interval(values, LEVEL)
    return mean, float(interval.low), float(interval.high)
