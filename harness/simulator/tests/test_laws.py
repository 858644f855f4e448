"""Laws that relate the methods to each other and to training without workers."""

from __future__ import annotations

import doctest
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.simulator import run as runs
from harness.simulator.methods import (
    AGN,
    EASGD,
    Downpour,
    DynSGD,
    Rule,
    Synchronous,
    Weights,
)
from harness.simulator.run import Push, Run, simulate
from harness.simulator.tests.interleaving import interleave

START = {"w": np.array([1.0, -2.0]), "b": np.array(0.5)}
SGD = Rule("GradientDescent", learning_rate=0.05)

METHODS: dict[str, Callable[[], Downpour]] = {
    "agn gradient": lambda: AGN(Rule("Momentum", learning_rate=0.05, momentum=0.5), 3),
    "agn delta": lambda: AGN(SGD, 3, commit="delta"),
    "downpour": lambda: Downpour(SGD, 3),
    "dynsgd": lambda: DynSGD(SGD, 3),
    "easgd": lambda: EASGD(SGD, 3, alpha=0.2),
    "synchronous": lambda: Synchronous(SGD),
}
methods = pytest.mark.parametrize("name", METHODS)


def staleness_of(run: Run) -> Counter[int]:
    """Return staleness -> number of pushes."""
    return Counter(push.staleness for push in run.pushes)


def noisy(weights: Weights, worker: int, generator: np.random.Generator) -> Any:
    """Return gradients of a quadratic, with noise."""
    return {n: w + generator.normal(0, 0.1, w.shape) for n, w in weights.items()}


def run(name: str, seed: int = 1, **options: Any) -> Run:
    settings: dict[str, Any] = {"workers": 4, "steps": 96, "seed": seed, **options}
    return simulate(METHODS[name](), START, noisy, **settings)


def same_weights(one: Weights, other: Weights) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in START)


@methods
def test_the_same_seed_gives_the_same_run(name: str) -> None:
    one, other = run(name), run(name)
    assert one.pushes == other.pushes
    assert same_weights(one.weights, other.weights)
    assert (one.bytes_moved, one.seconds) == (other.bytes_moved, other.seconds)


@methods
def test_another_seed_gives_another_run(name: str) -> None:
    one, other = run(name), run(name, seed=2)
    assert one.seconds != other.seconds
    assert not same_weights(one.weights, other.weights)


@methods
def test_when_things_happen_does_not_depend_on_what_is_learned(name: str) -> None:
    def still(weights: Weights, worker: int, generator: Any) -> Any:
        return {n: np.zeros_like(w) for n, w in weights.items()}

    moving = run(name)
    standing = simulate(METHODS[name](), START, still, workers=4, steps=96, seed=1)
    assert moving.pushes == standing.pushes
    assert same_weights(standing.weights, START)


@methods
def test_every_method_learns_the_quadratic(name: str) -> None:
    found = run(name, steps=960)
    assert all(np.abs(w).max() < 0.25 for w in found.weights.values())


@pytest.mark.parametrize(
    "method",
    [AGN(SGD, 1), AGN(SGD, 1, commit="delta"), Downpour(SGD, 1), DynSGD(SGD, 1)],
    ids=lambda method: type(method).__name__,
)
def test_one_worker_that_pushes_each_step_is_training_alone(method: Downpour) -> None:
    data = np.random.default_rng(3).normal(size=(20, 2))
    events = [(0, {"w": row}) for row in data]
    weights, state = {"w": START["w"]}, SGD.start({"w": START["w"]})
    for (_, gradients), found in zip(
        events, interleave(method, weights, 1, events), strict=True
    ):
        weights, state = SGD.step(weights, state, gradients)
        close(found.server.weights["w"], weights["w"])
        assert np.array_equal(found.workers[0].weights["w"], found.server.weights["w"])


def close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    "rule", [SGD, Rule("Adam", learning_rate=0.1)], ids=["sgd", "adam"]
)
def test_synchronous_training_is_training_on_the_whole_batch(rule: Rule) -> None:
    rows = np.random.default_rng(4).normal(size=(10, 5, 2))
    events = [(k, {"w": row}) for turn in rows for k, row in enumerate(turn)]
    *_, found = interleave(Synchronous(rule), {"w": START["w"]}, 5, events)
    weights, state = {"w": START["w"]}, rule.start({"w": START["w"]})
    for turn in rows:
        weights, state = rule.step(weights, state, {"w": turn.mean(0)})
    close(found.server.weights["w"], weights["w"])


def test_differences_and_gradients_are_one_under_gradient_descent() -> None:
    one = simulate(AGN(SGD, 5), START, noisy, workers=3, steps=300)
    other = simulate(AGN(SGD, 5, "delta"), START, noisy, workers=3, steps=300)
    assert one.pushes == other.pushes
    for name in START:
        close(one.weights[name], other.weights[name])


def test_differences_and_gradients_differ_under_momentum() -> None:
    rule = Rule("Momentum", learning_rate=0.05, momentum=0.9)
    one = simulate(AGN(rule, 5), START, noisy, workers=3, steps=300)
    other = simulate(AGN(rule, 5, "delta"), START, noisy, workers=3, steps=300)
    assert np.abs(one.weights["w"] - other.weights["w"]).max() > 1e-3


def test_without_staleness_dynsgd_is_downpour() -> None:
    one = simulate(DynSGD(SGD, 4), START, noisy, workers=1, steps=80)
    other = simulate(Downpour(SGD, 4), START, noisy, workers=1, steps=80)
    assert staleness_of(one) == {0: 20}
    assert same_weights(one.weights, other.weights)


def test_with_staleness_dynsgd_divides_by_one_more() -> None:
    still = {"w": np.zeros(2)}
    gradients = {"w": np.array([1.0, 2.0])}
    order = [(0, gradients), (1, gradients), (1, gradients), (0, gradients)]
    *_, found = interleave(DynSGD(SGD, 2), still, 2, order)
    # Worker 1 pushes first; worker 0, which pulled before that, counts half.
    expected = -0.05 * 2 * gradients["w"] * (1 + 1 / 2)
    close(found.server.weights["w"], expected)


def test_downpour_sends_what_agn_divides() -> None:
    order = [(0, {"w": np.array([1.0, 2.0])})] * 4
    *_, whole = interleave(Downpour(SGD, 4), {"w": np.zeros(2)}, 1, order)
    *_, mean = interleave(AGN(SGD, 4), {"w": np.zeros(2)}, 1, order)
    close(whole.server.weights["w"], 4 * mean.server.weights["w"])


def test_an_elastic_exchange_keeps_the_sum_of_worker_and_server() -> None:
    order = [(0, {"w": np.array([1.0, 2.0])})] * 3
    *_, found = interleave(EASGD(SGD, 3, alpha=0.25), {"w": np.zeros(2)}, 1, order)
    moved = -0.05 * 3 * np.array([1.0, 2.0])
    close(found.server.weights["w"], 0.25 * moved)
    close(found.workers[0].weights["w"], 0.75 * moved)


def test_workers_of_one_speed_are_as_stale_as_there_are_others() -> None:
    """Four at one pace push in turns: each push has seen three since its pull."""
    found = run("downpour", spread=0.0)
    assert found.pushes[4:8] == [Push(k, 6.0, 3) for k in range(4)]
    assert staleness_of(found) == {0: 1, 1: 1, 2: 1, 3: 29}


def test_bytes_and_seconds_are_counted_both_ways() -> None:
    found = run("agn gradient", workers=1, steps=6, spread=0.0, latency=1.5)
    # Two rounds of three steps; a message has 24 bytes.
    assert found.bytes_moved == 4 * 24
    assert found.seconds == 6 + 4 * 1.5


def test_longer_rounds_move_fewer_bytes() -> None:
    often, seldom = (
        simulate(AGN(SGD, period), START, noisy, 4, 240, spread=0.0)
        for period in (2, 10)
    )
    assert often.bytes_moved == 5 * seldom.bytes_moved


def test_what_is_observed_stands_with_its_time() -> None:
    found = run("agn gradient", observe=lambda weights: float(weights["b"]))
    assert [seconds for seconds, _ in found.trace] == [p.seconds for p in found.pushes]
    assert found.trace[-1][1] == found.weights["b"]


def test_the_example_runs() -> None:
    result = doctest.testmod(runs)
    assert (result.failed, result.attempted) == (0, 5)
