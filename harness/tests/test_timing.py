"""Timing: rounds are interleaved, and a ratio comes with an honest interval."""

from __future__ import annotations

import time

import numpy as np
import pytest

from harness.timing import Prepared, Rounds, Steps, low_quantile, made, ratio_interval


def test_every_round_runs_every_variant_once_in_varying_order() -> None:
    calls: list[str] = []
    steps = {name: (lambda n=name: calls.append(n)) for name in "abc"}
    rounds = Rounds(lambda seed: steps, between_builds=100, seed=0)
    rounds()
    calls.clear()
    for _ in range(20):
        rounds()
    orders = {tuple(calls[start : start + 3]) for start in range(0, 60, 3)}
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert len(orders) > 1
    assert {n: len(s) for n, s in rounds.seconds.items()} == dict.fromkeys("abc", 21)


def test_variants_are_made_anew_with_another_seed_from_time_to_time() -> None:
    seeds: list[int] = []

    def build(seed: int) -> Steps:
        seeds.append(seed)
        return {"a": lambda: None}

    rounds = Rounds(build, between_builds=4, seed=0)
    for _ in range(9):
        rounds()
    assert len(set(seeds)) == 3


def test_what_a_step_needs_anew_is_not_timed() -> None:
    calls: list[str] = []

    def prepare() -> None:
        time.sleep(0.05)
        calls.append("prepare")

    step = Prepared(prepare, lambda: calls.append("step"))
    rounds = Rounds(lambda seed: {"a": step}, between_builds=4, seed=0)
    for _ in range(4):
        rounds()
    assert calls == ["prepare", "step"] * (len(calls) // 2)
    assert min(rounds.seconds["a"]) < 0.05


def test_the_order_of_making_follows_from_the_seed() -> None:
    makers = {name: (lambda: lambda: None) for name in "abc"}
    orders = [tuple(made(makers, seed)) for seed in range(20)]
    assert tuple(made(makers, 0)) == orders[0]
    assert len(set(orders)) > 1


def test_the_low_quantile_does_not_feel_the_slow_half() -> None:
    quick = [1.0] * 20
    assert low_quantile(quick + [50.0] * 20) == low_quantile(quick)


def test_the_ratio_interval_holds_the_true_ratio() -> None:
    rng = np.random.default_rng(1)
    noise = rng.exponential(0.2, size=(2, 200))
    ratio, low, high = ratio_interval(3 * (1 + noise[0]), 2 * (1 + noise[1]))
    assert low < 1.5 < high
    assert low <= ratio <= high
    # The noise is a fifth of the time, its lowest tenth far less: 5 % either way.
    assert ratio == pytest.approx(1.5, rel=0.05)


def test_shared_slow_moments_cancel_out() -> None:
    slow = np.where(np.arange(100) % 7 == 0, 10.0, 1.0)
    ratio, low, high = ratio_interval(2 * slow, slow)
    assert (ratio, low, high) == (2, 2, 2)
