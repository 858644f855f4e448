"""The task: one head a genre, absent where the batch has no rating of it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

import numpy as np
import pytest

try:
    distribution("recbole")
except PackageNotFoundError:
    pytest.skip("recbole is not installed", allow_module_level=True)

from harness.records.record import Outcome
from harness.tasks.movie_genres import task
from harness.tasks.movie_genres.task import GENRES, RAREST, Plan, Settings, make_plan


def config(**changes: Any) -> dict[str, Any]:
    adam = {"name": "Adam", "learning_rate": 0.01}
    base = {"optimizer": adam, "wrapper": "none", "steps": 40, "checkpoints": 4}
    return {**base, "batch": 8, "hidden": 4} | changes


def run(seed: int = 0, **changes: Any) -> Outcome:
    pytest.importorskip("torch", reason="torch is not installed")
    return task.train(config(**changes), seed, "pytorch", "cpu")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(Settings(**config(steps=2000, batch=32)), 0)


def test_ratings_are_split_in_two_and_genres_are_as_rare_as_in_the_data(
    plan: Plan,
) -> None:
    assert len(plan.training.stars) + len(plan.held_out.stars) == 100_000
    assert abs(plan.training.stars.mean()) < 1e-4
    assert np.isfinite(plan.training.features).all()
    shares = dict(zip(GENRES, plan.presence.mean(axis=0), strict=True))
    assert min(shares, key=lambda genre: shares[genre]) == RAREST
    # 1 - (1 - share of the ratings) ** 32, within 4 deviations of 2000 batches.
    expected = {"Documentary": 0.216, "Fantasy": 0.353, "Drama": 1.0}
    for genre, share in expected.items():
        assert shares[genre] == pytest.approx(share, abs=0.045)


def moved_and_present(outcome: Outcome, genre: str) -> tuple[list[bool], list[bool]]:
    """Return whether a head moved, and whether its genre was there, by checkpoint."""
    moved, present = (
        (np.diff(outcome.series[f"{kind}/{genre}"]) > 0).tolist()
        for kind in ("path", "informative")
    )
    return moved, present


def test_a_head_of_an_absent_genre_stays_where_it_is_with_the_wrapper() -> None:
    outcome = run(wrapper="default", steps=4, checkpoints=4, batch=1)
    for genre in GENRES:
        moved, present = moved_and_present(outcome, genre)
        assert moved == present, genre


def test_momentum_goes_on_to_move_a_head_that_is_fed_zeros() -> None:
    momentum = {"name": "Momentum", "learning_rate": 0.01, "momentum": 0.9}
    outcome = run(optimizer=momentum, steps=8, checkpoints=8, batch=1)
    both = [moved_and_present(outcome, genre) for genre in GENRES]
    assert any(moved != present for moved, present in both)


def test_training_beats_the_mean_rating() -> None:
    outcome = run(steps=400, batch=32, hidden=16)
    errors = [np.sqrt(outcome.series[f"loss/{genre}"][-1]) for genre in GENRES]
    held_out = make_plan(Settings(**config()), 0).held_out
    squares = held_out.stars**2 @ held_out.genres / held_out.genres.sum(axis=0)
    assert np.mean(errors) < np.mean(np.sqrt(squares))


def test_a_run_follows_from_its_seed_and_may_diverge() -> None:
    assert run(seed=3) == run(seed=3)
    assert run(seed=3) != run(seed=4)
    lost = run(optimizer={"name": "GradientDescent", "learning_rate": 1e30})
    assert lost.status == "diverged" and "after step 10" in lost.reason
