"""The recommender: what is drawn, what limits promise, and what is timed."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from harness.declarations.declare import Run
from harness.records.record import Outcome
from harness.tasks.embeddings.training import Plan, norms, trainer_of
from harness.tasks.recommender import report, task
from harness.tasks.recommender.task import Settings
from harness.tests.synthetic import record_of
from lockstep import registry
from lockstep.interface import Array

BACKENDS = ("pytorch", "tf", "keras3")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("recbole") is None, reason="recbole is not installed"
)


def config(**changes: Any) -> dict[str, Any]:
    adagrad = {"name": "Adagrad", "learning_rate": 0.4}
    base = {"optimizer": adagrad, "limit": "clip", "max_norm": 1.0, "width": 4}
    sizes = {"steps": 10, "batch": 8, "checkpoints": 2, "start": 1.0, "timings": 2}
    return base | sizes | changes


def run(backend: str, seed: int = 0, **changes: Any) -> Outcome:
    pytest.importorskip(registry.find(backend).framework)
    return task.train(config(**changes), seed, backend, "cpu")


def trained(
    backend: str, steps: int = 10, **changes: Any
) -> tuple[Plan, dict[str, Array]]:
    """The plan of seed 0 and its tables after some steps."""
    pytest.importorskip(registry.find(backend).framework)
    settings = Settings(**config(**changes))
    plan = task.make_plan(settings, 0)
    model = trainer_of("recommender", settings, plan, backend, "cpu")
    model.reset(plan.weights)
    model.advance(plan.batches[:steps])
    return plan, model.tables()


def test_a_fifth_of_the_ratings_is_held_out_anew_in_each_seed() -> None:
    split, other = task.draw_split(0), task.draw_split(1)
    both = np.concatenate([split.training, split.held_out])
    assert split.rated.shape == (943, 1682)  # as the data's readme states
    assert (len(split.held_out), len(np.unique(both, axis=0))) == (20_000, 100_000)
    assert not np.array_equal(split.held_out, other.held_out)
    assert split.rated.sum() == 80_000
    assert not (split.rated & split.wanted).any()


def test_the_best_items_are_counted_by_their_places() -> None:
    """Two users and twelve items; the scores fall from the first item on."""
    scores = np.tile(-np.arange(12.0), (2, 1))
    rated, wanted = np.zeros((2, 2, 12), bool)
    rated[0, 0] = True
    wanted[0, [2, 11]] = True
    # Without the item that was rated, they are in the places 2 and 11. The second user
    # has no held-out rating and counts for nothing.
    first = 1 / np.log2(3) / (1 + 1 / np.log2(3))
    assert task.ndcg(scores, rated, wanted) == pytest.approx(first)
    wanted[1, 0] = True
    assert task.ndcg(scores, rated, wanted) == pytest.approx((first + 1) / 2)


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", BACKENDS)
def test_clipping_holds_named_rows_and_leaves_others_as_they_were(
    backend: str,
) -> None:
    series = run(backend).series
    # Rounding of the norm and of one product, in float32.
    assert max(series["highest/named"][1:]) == pytest.approx(1, abs=1e-6)
    assert series["highest/stored"][-1] > 1.05
    plan, tables = trained(backend)
    table, before = tables["item"], plan.weights["item"]
    others = np.setdiff1d(np.arange(len(table)), plan.ids("item", 0, 10))
    assert np.array_equal(table[others], before[others])


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", BACKENDS)
def test_adam_moves_clipped_rows_back_above_the_limit(backend: str) -> None:
    adam = {"name": "Adam", "learning_rate": 0.3}
    series = run(backend, optimizer=adam, start=0.5).series
    # Rounding of the norm and of one product, in float32.
    assert max(series["highest/named"][1:]) <= 1 + 1e-6
    plan, tables = trained(backend, optimizer=adam, start=0.5)
    assert norms(tables["item"])[plan.ids("item", 0, 10)].max() > 1.01


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_lookup_hands_out_rows_within_the_limit_and_stores_longer_ones(
    backend: str,
) -> None:
    series = run(backend, limit="lookup").series
    # Rounding of the norm and of one product, in float32.
    assert max(series["highest/served"]) == pytest.approx(1, abs=1e-6)
    assert min(series["highest/stored"]) > 1.05
    assert series["above"] == [0, 0, 0]


@pytest.mark.sample(2)
@pytest.mark.parametrize("limit", task.LIMITS)
@pytest.mark.parametrize("other", ("tf", "keras3"))
def test_backends_start_equal_and_agree_on_a_short_run(limit: str, other: str) -> None:
    for framework in ("torch", "tensorflow", "keras"):
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    torch, theirs = (run(b, limit=limit).series for b in ("pytorch", other))
    assert torch.keys() == theirs.keys()
    for column, values in torch.items():
        assert values[0] == theirs[column][0], column
        # Rounding, over 10 steps of a smooth loss.
        assert values == pytest.approx(theirs[column], rel=1e-4, abs=1e-6), column


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", BACKENDS)
def test_runs_that_clip_time_every_limit(backend: str) -> None:
    summary = run(backend).summary
    names = {
        f"seconds/{what}/{limit}" for what in ("step", "lookup") for limit in task.TIMED
    }
    assert names < summary.keys()
    assert min(summary.values()) > 0
    assert not names & run(backend, limit="none").summary.keys()


def test_metrics_of_time_compare_two_times_of_one_run() -> None:
    run = Run("recommender", "recommender", config(), 0)
    times = {"step/clip": 3.0, "step/lookup": 2.0, "lookup/lookup": 8.0}
    summary = {f"seconds/{name}": seconds for name, seconds in times.items()}
    record = record_of(run, "tf", Outcome("ok", "", {}, summary))
    assert report.METRICS["step time"].read(record) == pytest.approx(1.5)
    assert np.isnan(report.METRICS["lookup time"].read(record))
