"""The recommender: what is drawn, what limits promise, and what is timed."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from harness.records.record import Outcome, Record
from harness.tasks.embeddings.training import Plan, norms, trainer_of
from harness.tasks.recommender import report, task
from harness.tasks.recommender.task import Settings
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


def test_the_ratings_have_the_sizes_that_their_readme_states() -> None:
    pairs = task.read_pairs()
    assert (pairs.max(axis=0) + 1).tolist() == [943, 1682]
    assert len(np.unique(pairs, axis=0)) == 100_000
    assert np.bincount(pairs[:, 0]).min() >= 20


def test_a_fifth_of_the_ratings_is_held_out_anew_in_each_seed() -> None:
    split, other = task.draw_split(0), task.draw_split(1)
    both = np.concatenate([split.training, split.held_out])
    assert len(split.held_out) == 20_000
    assert len(np.unique(both, axis=0)) == 100_000
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


def made_up(step: float, lookup: float, served: float) -> list[Record]:
    """Records of five seeds: time ratios lookup / clip, and norms that are served."""
    records = []
    for limit, seed in ((limit, seed) for limit in task.LIMITS for seed in range(5)):
        series = {name: [1.0, 1.0, 1.0] for name in report.SERIES}
        if limit == "clip":
            series["highest/served"] = [1.0, 1.0, served]
        times = {
            f"seconds/{what}/{name}": 1e-3
            for what in ("step", "lookup")
            for name in task.TIMED
        }
        times["seconds/step/clip again"] *= step
        times["seconds/lookup/lookup"] *= lookup
        times["seconds/step/clip"] *= step
        subject = {"backend": "tf", "device": "cpu"}
        what = "recommender", f"{limit}{seed}", "recommender", config(limit=limit), seed
        summary = {report.POPULAR: 0.2}
        summary |= times if limit == "clip" else {}
        records.append(Record(*what, subject, "0", "ok", "", series, summary))
    return records


def test_metrics_of_time_compare_two_times_of_one_run() -> None:
    records = made_up(1.5, 2.0, 1.3)
    (clipped,) = [r for r in records if r.config["limit"] == "clip" and r.seed == 0]
    assert report.METRICS["step time"].read(clipped) == pytest.approx(1.5)
    assert report.METRICS["lookup time"].read(clipped) == pytest.approx(2.0)
    assert np.isnan(report.METRICS["lookup time"].read(records[0]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_named_rows_of_the_named_table_move(backend: str) -> None:
    plan, tables = trained(backend, 1, limit="none")
    for name, table in tables.items():
        moved = np.flatnonzero((table != plan.weights[name]).any(axis=1))
        assert moved.tolist() == plan.ids(name, 0, 1).tolist(), name
