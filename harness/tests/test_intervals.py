"""Intervals: coverage by simulation of known answers, and laws."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from harness.statistics import (
    Floats,
    bootstrap,
    median,
    ratio_of_sums,
    t_interval,
)

INF = np.inf
TRIALS = 1000
BATCH = 250
SLACK = 3 * (0.95 * 0.05 / TRIALS) ** 0.5
"""A share of 0.95 in 1000 trials has a binomial deviation of 0.0069; three of them."""


class Shape(NamedTuple):
    """A distribution of effects with its true median and mean."""

    draw: Callable[..., Floats]
    median: float
    mean: float


SHAPES = {
    "normal": Shape(lambda rng, size: rng.normal(size=size), 0, 0),
    "log of exponential": Shape(
        lambda rng, size: np.log(rng.exponential(size=size)),
        np.log(np.log(2)),
        -np.euler_gamma,
    ),
    "log ratio of exponentials": Shape(
        lambda rng, size: rng.logistic(size=size),
        0,
        0,
    ),
    "lognormal": Shape(lambda rng, size: rng.lognormal(size=size), 1, np.exp(0.5)),
}


def mean(values: Floats) -> Floats:
    return values.mean(axis=1)


def coverage(statistic: Callable[..., Floats], shape: str, n: int) -> float:
    """Return the share of bootstrap intervals that hold the truth."""
    rng, of = np.random.default_rng(5), SHAPES[shape]
    truth = of.median if statistic is median else of.mean
    held = []
    for _ in range(TRIALS // BATCH):
        interval = bootstrap(statistic, of.draw(rng, (n, BATCH)))
        held.append((interval.low <= truth) & (truth <= interval.high))
    return float(np.mean(held))


@pytest.mark.sample(1)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [5, 10, 20])
def test_the_bootstrap_of_a_median_covers_93_to_97_percent(shape: str, n: int) -> None:
    assert 0.93 - SLACK < coverage(median, shape, n) < 0.97 + SLACK


@pytest.mark.parametrize("shape", list(SHAPES)[:3])
@pytest.mark.parametrize("n", [10, 20])
def test_the_bootstrap_of_a_mean_of_logs_covers_93_to_97_percent(shape, n) -> None:
    assert 0.93 - SLACK < coverage(mean, shape, n) < 0.97 + SLACK


@pytest.mark.parametrize("shape", ["normal", "log ratio of exponentials"])
@pytest.mark.parametrize("n", [3, 6])
def test_the_t_interval_covers_93_to_97_percent(shape: str, n: int) -> None:
    rng, held = np.random.default_rng(9), []
    for _ in range(TRIALS):
        interval = t_interval(SHAPES[shape].draw(rng, n))
        held.append(interval.low <= 0 <= interval.high)
    assert 0.93 - SLACK < np.mean(held) < 0.97 + SLACK


def test_the_t_interval_is_scipys() -> None:
    values = np.random.default_rng(1).normal(3, 2, size=6)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    # Two algorithms for the quantile: equal but for the last digits.
    assert t_interval(values) == pytest.approx((values.mean(), *expected), rel=1e-12)
    assert np.isnan(t_interval([1.0])[1:]).all()


def test_identical_pairs_give_an_interval_of_no_width() -> None:
    for n in (1, 2, 10):
        assert bootstrap(median, [0.3] * n) == (0.3, 0.3, 0.3)
    assert t_interval([0.3] * 6) == (0.3, 0.3, 0.3)


def test_the_bootstrap_moves_and_turns_with_its_values() -> None:
    values = np.random.default_rng(4).normal(size=9)
    one, moved, turned = (bootstrap(median, v) for v in (values, values + 2, -values))
    assert moved == pytest.approx(tuple(end + 2 for end in one))
    assert turned == (-one.estimate, -one.high, -one.low)
    assert bootstrap(median, values) == one
    assert bootstrap(mean, values) != bootstrap(mean, values, seed=1)


def test_entries_of_a_run_stay_together() -> None:
    values = np.random.default_rng(6).normal(size=(8, 3))
    ratio = bootstrap(ratio_of_sums, 2 * values, values)
    assert np.array(ratio) == pytest.approx(2)
    curve = bootstrap(median, values)
    first = bootstrap(median, values[:, 0])
    assert (curve.estimate[0], curve.low[0], curve.high[0]) == first


def test_diverged_runs_give_infinite_ends_and_no_nan() -> None:
    assert bootstrap(median, [0.1] * 9 + [INF]).high < INF
    half = bootstrap(median, [0.1, INF] * 5)
    assert half == (INF, 0.1, INF)
    assert bootstrap(median, [-INF, INF] * 5) == (0, -INF, INF)
    with np.errstate(invalid="ignore"):
        undefined = bootstrap(mean, [-INF, INF, 0.0])
    assert (undefined.low, undefined.high) == (-INF, INF)
