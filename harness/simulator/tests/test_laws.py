"""Laws that relate the methods to each other, to the reference and to one worker."""

from __future__ import annotations

import doctest
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.simulator import run as runs
from harness.simulator.methods import AGN, EASGD, Downpour, DynSGD, Weights
from harness.simulator.run import Run, Team
from lockstep import reference

START = {"w": np.array([1.0, -2.0]), "b": np.array(0.5)}

METHODS: dict[str, Callable[[], Downpour]] = {
    "agn gradient": lambda: AGN(3),
    "agn delta": lambda: AGN(3, "delta"),
    "downpour": lambda: Downpour(3),
    "dynsgd": lambda: DynSGD(3),
    "easgd": lambda: EASGD(3, alpha=0.2),
}
methods = pytest.mark.parametrize("name", [*METHODS, "synchronous"])


def descent() -> reference.GradientDescentOptimizer:
    return reference.GradientDescentOptimizer(0.05)


def momentum() -> reference.MomentumOptimizer:
    return reference.MomentumOptimizer(0.05, 0.9)


def adam() -> reference.AdamOptimizer:
    return reference.AdamOptimizer(0.1)


def noisy(weights: Weights, worker: int, stream: np.random.Generator) -> Weights:
    """Return gradients of a quadratic, with noise."""
    return {n: w + stream.normal(0, 0.1, w.shape) for n, w in weights.items()}


def team(optimizer: Any = descent, gradient: Any = noisy, **changes: Any) -> Team:
    settings: dict[str, Any] = {"workers": 4, "steps": 96, "seed": 1, **changes}
    return Team(optimizer, START, gradient, **settings)


def run(name: str, **changes: Any) -> Run:
    if name == "synchronous":
        return team(**changes).train_together()
    return team(**changes).train(METHODS[name]())


def constant(weights: Weights, worker: int, stream: Any) -> Weights:
    return {n: np.ones_like(w) for n, w in weights.items()}


def same_weights(one: Run, other: Run) -> bool:
    return all(np.array_equal(one.weights[n], other.weights[n]) for n in START)


def close(one: Run, other: Run) -> None:
    for name in START:
        np.testing.assert_allclose(
            one.weights[name], other.weights[name], rtol=1e-12, atol=1e-12
        )


@methods
def test_a_seed_decides_the_run(name: str) -> None:
    one, other, third = run(name), run(name), run(name, seed=2)
    assert same_weights(one, other)
    assert (one.staleness, one.seconds) == (other.staleness, other.seconds)
    assert not same_weights(one, third) and one.seconds != third.seconds


@methods
def test_when_things_happen_does_not_depend_on_what_is_learned(name: str) -> None:
    one, other = run(name), run(name, gradient=constant)
    assert (one.staleness, one.seconds) == (other.staleness, other.seconds)
    assert [s for s, _ in one.trace] == [s for s, _ in other.trace]


@methods
def test_every_method_learns_the_quadratic(name: str) -> None:
    assert all(np.abs(w).max() < 0.25 for w in run(name, steps=960).weights.values())


@pytest.mark.parametrize("commit", ["gradient", "delta"])
@pytest.mark.parametrize("optimizer", [descent, momentum, adam])
@pytest.mark.parametrize("seed", range(2))
def test_agn_is_that_of_the_reference(seed: int, optimizer: Any, commit: str) -> None:
    """Without latency, a round ends at once, as in the reference."""
    center, team_of_reference = None, []
    for _ in range(3):
        getter = reference.AGNCustomGetter("/cpu:0", center)
        center = getter.center
        variables = getter([reference.Variable(n, w) for n, w in START.items()])
        agn = reference.AGNOptimizer(optimizer(), 3, getter, 4, commit=commit)
        team_of_reference.append((agn, variables))

    def compared(weights: Weights, worker: int, stream: Any) -> Weights:
        agn, variables = team_of_reference[worker]
        assert all(np.array_equal(weights[v.name], v.value) for v in variables)
        gradients = noisy(weights, worker, stream)
        agn.apply_gradients([(gradients[v.name], v) for v in variables])
        return gradients

    options = {"workers": 3, "steps": 60, "seed": seed}
    made = team(optimizer, compared, **options).train(AGN(4, commit))
    assert center is not None
    for name, value in made.weights.items():
        assert np.array_equal(value, center.variables[name].value)


@pytest.mark.parametrize("method", [AGN(1), AGN(1, "delta"), Downpour(1), DynSGD(1)])
def test_one_worker_that_pushes_each_step_is_training_alone(method: Downpour) -> None:
    close(team(workers=1).train(method), team(workers=1).train_together())


@pytest.mark.parametrize("optimizer", [descent, adam])
def test_training_together_is_training_on_the_whole_batch(optimizer: Any) -> None:
    rows = np.random.default_rng(4).normal(size=(5, 2))

    def row(weights: Weights, worker: int, stream: Any) -> Weights:
        return {n: w + rows[worker, : w.size].mean() for n, w in weights.items()}

    def batch(weights: Weights, worker: int, stream: Any) -> Weights:
        of_rows = [row(weights, k, stream) for k in range(5)]
        return {n: np.asarray(sum(g[n] for g in of_rows) / 5) for n in weights}

    together = team(optimizer, row, workers=5, steps=50).train_together()
    close(together, team(optimizer, batch, workers=1, steps=10).train_together())


def test_changes_and_gradients_are_one_under_gradient_descent_alone() -> None:
    pairs = [
        [
            team(made, steps=300).train(AGN(5, commit))
            for commit in ("gradient", "delta")
        ]
        for made in (descent, momentum)
    ]
    close(*pairs[0])
    assert np.abs(pairs[1][0].weights["w"] - pairs[1][1].weights["w"]).max() > 1e-3


def test_dynsgd_divides_by_the_staleness_and_one() -> None:
    alone = {"workers": 1, "gradient": constant}
    assert same_weights(run("dynsgd", **alone), run("downpour", **alone))
    # Two workers of one pace: the second push has seen the first one.
    two = {"workers": 2, "steps": 6, "spread": 0.0, "gradient": constant}
    moved = START["w"] - run("dynsgd", **two).weights["w"]
    np.testing.assert_allclose(moved, 0.05 * 3 * (1 + 1 / 2))


def test_downpour_sends_what_agn_divides() -> None:
    one = {"workers": 1, "steps": 3, "gradient": constant}
    whole, mean = (
        START["w"] - run(name, **one).weights["w"] for name in ("downpour", "agn delta")
    )
    np.testing.assert_allclose(whole, 3 * mean)


def test_an_elastic_exchange_moves_the_center_by_a_part_of_the_distance() -> None:
    made = run("easgd", workers=1, steps=3, gradient=constant)
    np.testing.assert_allclose(START["w"] - made.weights["w"], 0.2 * 0.05 * 3)


def test_workers_of_one_speed_are_as_stale_as_there_are_others() -> None:
    """Four at one pace push in turns: each push has seen three since its pull."""
    assert Counter(run("downpour", spread=0.0).staleness) == {0: 1, 1: 1, 2: 1, 3: 29}


def test_messages_take_their_time() -> None:
    # Two rounds of three steps; a message goes both ways.
    made = run("agn gradient", workers=1, steps=6, spread=0.0, latency=1.5)
    assert made.seconds == 6 + 4 * 1.5
    assert [seconds for seconds, _ in made.trace] == [4.5, 10.5, 12]


@methods
def test_the_center_is_measured_every_so_often_and_at_the_end(name: str) -> None:
    made = run(name, measure=lambda weights: float(weights["b"]), every=24)
    assert len(made.trace) in (4, 5)
    assert made.trace[-1] == (made.seconds, made.weights["b"])


def test_the_example_runs() -> None:
    result = doctest.testmod(runs)
    assert (result.failed, result.attempted) == (0, 6)
