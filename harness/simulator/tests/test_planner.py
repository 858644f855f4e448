"""The planner: what it says of networks whose answer is known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from harness.errors import HarnessError
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


def test_without_communication_all_are_equal() -> None:
    free = Setting(0.03, 0.0, 1.0)
    for workers in (1, 7, 1000):
        rate = workers / 0.03
        assert free.steps(1, workers) == pytest.approx(rate)
        assert free.synchronous_steps(workers) == pytest.approx(rate)


@pytest.mark.parametrize(("period", "wins"), [(2, False), (6, True), (10, True)])
def test_on_a_slow_network_the_period_must_exceed_half_of_the_workers(
    period: int, wins: bool
) -> None:
    slow = Setting(0.03, 91e6, 1e3)
    gain = slow.steps(period, 8) / slow.synchronous_steps(8)
    # The center's link takes 8 models a round, the ring 2 * 7 / 8 models a step. Of
    # two equal stations, 8 customers keep each busy for 8 / 9 of the time.
    assert gain == pytest.approx(period * 2 * 7 / 64 * 8 / 9, rel=1e-3)
    assert (gain > 1) == wins


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
