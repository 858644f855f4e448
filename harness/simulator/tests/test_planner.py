"""The planner: what it says of networks whose answer is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.simulator import AGN, Rule, Timing, simulate
from harness.simulator.planner import Setting

SETTING = Setting(0.03, 91e6, 125e6, latency_seconds=1e-3, center_seconds=0.1)
PERIODS = (1, 10, 40)


def test_a_worker_alone_takes_a_round_after_the_other() -> None:
    seconds = 10 * 0.03 + 2 * 1e-3 + 2 * 91e6 / 125e6 + 0.1
    assert SETTING.steps(10, 1) == pytest.approx(10 / seconds)
    assert SETTING.synchronous_steps(1) == pytest.approx(1 / 0.03)


@pytest.mark.parametrize("period", PERIODS)
def test_many_workers_are_limited_by_the_link_or_the_center(period: int) -> None:
    transfer = 91e6 / 125e6
    assert SETTING.steps(period, 2000) == pytest.approx(period / transfer, rel=1e-2)
    slow = replace(SETTING, center_seconds=2.0)
    assert slow.steps(period, 2000) == pytest.approx(period / 2.0, rel=1e-2)
    assert SETTING.steps(period, 2000) <= SETTING.most_steps(period, 2000)


@pytest.mark.parametrize("workers", [1, 4, 64])
def test_a_longer_period_takes_more_steps(workers: int) -> None:
    steps = [SETTING.steps(period, workers) for period in PERIODS]
    assert steps == sorted(steps)
    assert SETTING.knee(40) > SETTING.knee(10) > SETTING.knee(1)


def test_without_communication_all_are_equal() -> None:
    free = Setting(0.03, 0.0, 1.0)
    for workers in (1, 7, 1000):
        rate = workers / 0.03
        assert free.steps(1, workers) == pytest.approx(rate)
        assert free.synchronous_steps(workers) == pytest.approx(rate)
    assert free.knee(1) == math.inf
    assert free.bandwidths_of_gain(2.0, 10, 8) is None
    assert free.bandwidths_of_gain(1.0 - 1e-9, 10, 8) == (0.0, math.inf)


@pytest.mark.parametrize(("period", "wins"), [(2, False), (6, True), (10, True)])
def test_on_a_slow_network_the_period_must_exceed_half_of_the_workers(
    period: int, wins: bool
) -> None:
    slow = Setting(0.03, 91e6, 1e3)
    gain = slow.gain(period, 8)
    # The center's link takes 8 models a round, the ring 2 * 7 / 8 models a step. Of
    # two equal stations, 8 customers keep each busy for 8 / 9 of the time.
    assert gain == pytest.approx(period * 2 * 7 / 64 * 8 / 9, rel=1e-3)
    assert (gain > 1) == wins


@pytest.mark.parametrize(("workers", "has_lower_end"), [(8, False), (64, True)])
def test_a_gain_is_reached_between_two_bandwidths_and_not_outside(
    workers: int, has_lower_end: bool
) -> None:
    ends = SETTING.bandwidths_of_gain(2.0, 40, workers)
    assert ends is not None and ends[0] < ends[1]
    assert (ends[0] > 0) == has_lower_end
    for end, inside in zip(ends, (1.01, 0.99), strict=True):
        for factor in (inside, 1 / inside) if end else ():
            near = replace(SETTING, bytes_per_second=end * factor)
            assert (near.gain(40, workers) >= 2.0) == (factor == inside)


def test_the_staleness_is_that_of_the_simulator() -> None:
    def gradients(weights: object, worker: int, stream: np.random.Generator) -> object:
        return {"w": np.float32(stream.normal())}

    agn = AGN(Rule("GradientDescent", learning_rate=0.1), period=2)
    start = {"w": np.float32(0).reshape(())}
    timing = Timing(latency_seconds=0.1)
    run = simulate(agn, start, gradients, 6, 6000, timing, 0)
    mean = np.mean([push.staleness for push in run.pushes])
    # The first pushes of each worker find fewer before them.
    assert mean == pytest.approx(SETTING.staleness(6), rel=0.01)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"step_seconds": 0.0}, "step_seconds: expected a finite number > 0, got 0.0"),
        ({"model_bytes": -1.0}, "model_bytes: expected a finite number >= 0"),
        ({"bytes_per_second": math.inf}, "bytes_per_second: expected a finite number"),
        ({"latency_seconds": math.nan}, "latency_seconds: expected a finite number"),
    ],
)
def test_a_setting_that_cannot_be_is_one_sentence(
    changed: dict[str, float], told: str
) -> None:
    with pytest.raises(HarnessError, match=told):
        replace(SETTING, **changed)


def test_a_plan_needs_a_period_and_workers() -> None:
    with pytest.raises(HarnessError, match="period: expected an integer >= 1, got 0"):
        SETTING.steps(0, 2)
    with pytest.raises(HarnessError, match="customers: expected an integer >= 1"):
        SETTING.steps(1, 0)


def test_a_row_has_what_its_parts_have() -> None:
    row = SETTING.row(10, 8)
    assert row["gain"] == pytest.approx(
        row["steps_per_second"] / row["synchronous_steps_per_second"]
    )
    assert row["staleness"] == 7
    assert 0 < row["utilization"] < 1 and row["waiting_seconds"] > 0
