"""Confidence intervals: over seeds, over processes, and of a share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, stdtrit

from harness.statistics.effects import Floats, refusal, vector

LEVEL = 0.95
RESAMPLES = 2000


class Interval(NamedTuple):
    """An estimate with its confidence interval (95% by default); scalars or arrays."""

    estimate: Floats
    low: Floats
    high: Floats

    def columns(self, name: str) -> dict[str, Any]:
        """Return the three values as columns ``name``, ``low`` and ``high``."""
        return {name: self.estimate, "low": self.low, "high": self.high}

    def named(self, name: str) -> dict[str, Any]:
        """Return the three values as ``NAME``, ``NAME_low`` and ``NAME_high``."""
        return {name: self.estimate, f"{name}_low": self.low, f"{name}_high": self.high}


def bootstrap(
    statistic: Callable[..., Floats], *samples: npt.ArrayLike, seed: int = 0
) -> Interval:
    """Return a statistic over seeds with its percentile bootstrap interval of 95%.

    The seeds are drawn with replacement 2000 times, jointly for all samples. The
    interval excludes a share q of the resampled statistics at each end,

        q = Phi(-sqrt(n / (n - 1)) t),

    where t is the 97.5% point of Student's distribution with n - 1 degrees of freedom.
    These are the expanded percentiles of Hesterberg, "What Teachers Should Know About
    the Bootstrap", The American Statistician 69, 2015. Plain percentiles (q = 2.5%)
    are too narrow for few seeds. Identical values x give [x, x].

    Measured coverage, 4000 simulations each:

    ====  ======  =============  ===========  =========
    n     of the  normal values  exponential  lognormal
    ====  ======  =============  ===========  =========
    5     median  .945           .939         .945
    5     mean    .928           .877         .811
    10    median  .969           .965         .968
    10    mean    .948           .903         .849
    20    median  .967           .960         .967
    20    mean    .954           .917         .873
    ====  ======  =============  ===========  =========

    So the interval of the median is reliable from 5 seeds on, for any distribution. The
    interval of the mean is reliable from 10 seeds on if the values are not skewed, such
    as logarithms of ratios (.930 at n = 10 for logarithms of exponential values). At
    n = 5 it is too narrow. Plain percentiles give .904 for the mean of 10 normal
    values.

    The statistic of a resample may be NaN (a mean of infinities of both signs). It is
    then treated as -inf for the lower end and as inf for the upper end.

    Args:
        statistic: reduces the second axis of arrays [resamples, seeds, ...].
        samples: arrays [seeds, ...]; the entries of a run stay together.
        seed: of the resampling.

    Raises:
        HarnessError: There are no seeds, or the samples have different numbers of them.
    """
    arrays = [np.asarray(sample, np.float64) for sample in samples]
    counts = {array.shape[:1] for array in arrays}
    if len(counts) != 1 or counts & {(), (0,)}:
        got = " and ".join(str(array.shape) for array in arrays) or "no sample"
        remedy = "pass arrays with one entry for each seed"
        raise refusal("bootstrap", "samples over the same seeds", got, remedy)
    count = len(arrays[0])
    rows = np.random.default_rng(seed).integers(count, size=(RESAMPLES, count))
    estimate = statistic(*(array[None] for array in arrays))[0]
    resampled = statistic(*(array[rows] for array in arrays))
    outside = int(_share_outside(count) * RESAMPLES)
    undefined = np.isnan(resampled)
    low = np.sort(np.where(undefined, -np.inf, resampled), axis=0)[outside]
    high = np.sort(np.where(undefined, np.inf, resampled), axis=0)[-1 - outside]
    return Interval(estimate, low, high)


def _share_outside(count: int) -> float:
    """Return the share of resampled statistics beyond each end of the interval."""
    if count == 1:
        return 0.0
    quantile = stdtrit(count - 1, (1 + LEVEL) / 2)
    return float(ndtr(-np.sqrt(count / (count - 1)) * quantile))


def t_interval(values: npt.ArrayLike, level: float = LEVEL) -> Interval:
    """Return the mean of independent values with Student's t interval.

        mean +- t s / sqrt(n)

    with s the standard deviation (n - 1) and t the (1 + level) / 2 point of Student's
    distribution with n - 1 degrees of freedom. It is meant for few measuring processes,
    whose log ratios are roughly normal. It covers 95% with 6 and with 3 processes; a
    plain bootstrap over 3 covers about 72%.

    Args:
        values: one per process.
        level: probability that the interval covers the mean.

    Raises:
        HarnessError: There are fewer than two values, or one is not finite.
    """
    array = vector(values, "t_interval")
    if len(array) < 2 or not np.isfinite(array).all():
        remedy = "measure in more processes and leave out failed ones"
        got = ", ".join(f"{value:g}" for value in array)
        raise refusal("t_interval", "at least 2 finite values", got, remedy)
    centre = array.mean()
    error = array.std(ddof=1) / np.sqrt(len(array))
    half = stdtrit(len(array) - 1, (1 + level) / 2) * error
    return Interval(*map(np.asarray, (centre, centre - half, centre + half)))
