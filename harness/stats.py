"""Bootstrap intervals: seeded, so that the same records give the same digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "Floats",
    "Interval",
    "bootstrap",
    "median",
    "overlap",
    "ratio_of_sums",
    "relative_gap",
]

Floats: TypeAlias = npt.NDArray[np.float64]

LEVEL = 0.95
RESAMPLES = 2000


class Interval(NamedTuple):
    """An estimate with its percentile interval of level 0.95; scalars or arrays."""

    estimate: Floats
    low: Floats
    high: Floats

    def columns(self, name: str) -> dict[str, Any]:
        """Return the three as columns of a table: ``name``, ``low`` and ``high``."""
        return {name: self.estimate, "low": self.low, "high": self.high}

    def named(self, name: str) -> dict[str, Any]:
        """Return the three as ``NAME``, ``NAME_low`` and ``NAME_high``."""
        return {name: self.estimate, f"{name}_low": self.low, f"{name}_high": self.high}


def bootstrap(
    statistic: Callable[..., Floats], *samples: npt.ArrayLike, seed: int = 0
) -> Interval:
    """Resample the first axis (the seeds of runs) of all samples together.

    Args:
        statistic: takes arrays [resamples, seeds, ...] and reduces the second axis.
        samples: arrays [seeds, ...]; one run's entries stay together.
        seed: of the resampling.
    """
    arrays = [np.asarray(sample, np.float64) for sample in samples]
    count = len(arrays[0])
    rows = np.random.default_rng(seed).integers(count, size=(RESAMPLES, count))
    estimate = statistic(*(array[None] for array in arrays))[0]
    resampled = statistic(*(array[rows] for array in arrays))
    outside = (1 - LEVEL) / 2
    low, high = np.quantile(
        resampled, [outside, 1 - outside], axis=0, method="closest_observation"
    )
    return Interval(estimate, low, high)


def ratio_of_sums(numerators: Floats, denominators: Floats) -> Floats:
    """sum numerators / sum denominators over the seeds."""
    result: Floats = numerators.sum(axis=1) / denominators.sum(axis=1)
    return result


def median(values: Floats) -> Floats:
    """The median over the seeds; infinite values count as the largest."""
    result: Floats = np.median(values, axis=1)
    return result


def overlap(a: Interval, b: Interval, slack: float = 0.0) -> bool:
    """Whether two intervals meet, each widened by the share ``slack``."""
    low = max(float(a.low), float(b.low)) * (1 - slack)
    return low <= min(float(a.high), float(b.high)) * (1 + slack)


def relative_gap(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """|a - b| / max(|a|, |b|), entry by entry; 0 where both are equal."""
    one, other = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.abs(one - other) / np.maximum(np.abs(one), np.abs(other))
    return np.where(one == other, 0.0, gap)
