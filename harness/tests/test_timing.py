"""Timing: rounds are interleaved, and a ratio comes with an honest interval."""

from __future__ import annotations

import time
from functools import partial

from harness.timing import (
    BURST,
    LONGEST_BURST,
    WARM_UP,
    Prepared,
    Rounds,
    Steps,
)


def test_every_round_runs_every_variant_once_in_varying_order() -> None:
    calls: list[str] = []

    def step(name: str) -> None:
        time.sleep(BURST)
        calls.append(name)

    steps = {name: partial(step, name) for name in "abc"}
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
    rounds = Rounds(lambda seed: {"a": step}, between_builds=1, seed=0)
    rounds()
    assert calls == ["prepare", "step"] * (len(calls) // 2)
    assert min(rounds.seconds["a"]) < 0.05


def test_short_steps_are_timed_more_often_and_each_variant_as_often() -> None:
    calls: dict[str, int] = {"long": 0, "short": 0}

    def step(name: str, seconds: float) -> None:
        calls[name] += 1
        time.sleep(seconds)

    steps = {"long": lambda: step("long", 0.001), "short": lambda: step("short", 0)}
    rounds = Rounds(lambda seed: steps, between_builds=1, seed=0)
    rounds()
    assert calls["long"] == calls["short"] == WARM_UP + rounds.burst
    assert 1 < rounds.burst <= LONGEST_BURST
    # The mean of a burst, not its sum: a sleep never ends early.
    assert rounds.seconds["long"][0] >= 0.001


def test_the_time_of_a_block_is_that_of_one_of_its_steps() -> None:
    block = Prepared(lambda: None, lambda: time.sleep(0.1), count=10)
    rounds = Rounds(lambda seed: {"a": block}, between_builds=1, seed=0)
    rounds()
    assert 0.01 <= rounds.seconds["a"][0] < 0.1
