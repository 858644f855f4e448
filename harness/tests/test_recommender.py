"""The recommender: what is drawn, what limits promise, and what is timed."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from harness.records.record import Outcome, Record
from harness.tasks.embeddings.trainer import recipe_of, trainer_of
from harness.tasks.recommender import data, findings, training
from harness.tasks.recommender.settings import Settings
from lockstep.interface import Array

BACKENDS = [
    pytest.param(
        backend,
        marks=pytest.mark.skipif(
            importlib.util.find_spec(framework) is None,
            reason=f"{framework} is not installed",
        ),
    )
    for backend, framework in (("pytorch", "torch"), ("tf", "tensorflow"))
]

SIZES = data.Sizes(users=20, items=200, steps=10, batch=8)


def config(**changes: Any) -> dict[str, Any]:
    adagrad = {"name": "Adagrad", "learning_rate": 0.4}
    base = {"optimizer": adagrad, "limit": "clip", "max_norm": 2.0, "width": 4}
    sizes = SIZES._asdict()
    return {**base, **sizes, "checkpoints": 2, "timings": 2} | changes


def run(backend: str, seed: int = 0, **changes: Any) -> Outcome:
    return training.train(config(**changes), seed, backend, "cpu")


def test_items_are_chosen_by_popularity_and_by_taste() -> None:
    sizes = data.Sizes(users=50, items=100, steps=400, batch=100)
    drawn = data.draw_choices(sizes, 0)
    user, item, other = drawn.batches.reshape(-1, 3).T
    assert item.min() >= 0 and item.max() < sizes.items
    shares = np.bincount(other, minlength=sizes.items) / len(other)
    # 40,000 draws: the most popular items to within five standard deviations.
    assert shares[:5] == pytest.approx(data.popularity(sizes.items)[:5], rel=0.08)
    favourites = [np.bincount(item[user == u]).argmax() for u in range(sizes.users)]
    assert len(set(favourites)) > 5
    assert drawn.held_out.shape == (data.HELD_OUT, 2 + data.OTHERS)


def test_choices_follow_from_the_seed_alone() -> None:
    first = data.draw_choices(SIZES, 1).batches
    other = data.draw_choices(SIZES, 2).batches
    assert not np.array_equal(first, other)
    assert np.array_equal(first, data.draw_choices(SIZES, 1).batches)


@pytest.mark.parametrize("backend", BACKENDS)
def test_clipping_holds_named_rows_and_leaves_others_as_they_were(
    backend: str,
) -> None:
    series = run(backend).series
    # Rounding of the norm and of one product, in float32.
    assert max(series["highest/named"][1:]) == pytest.approx(1, abs=1e-6)
    assert series["highest/stored"][-1] > 1.05
    assert series["unnamed"][-1] > 0
    assert series["drifted"] == [0, 0, 0]
    assert series["changed"] == [0, 0, 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_adam_moves_clipped_rows_back_above_the_limit(backend: str) -> None:
    adam = {"name": "Adam", "learning_rate": 0.3}
    series = run(backend, optimizer=adam).series
    # Rounding of the norm and of one product, in float32.
    assert max(series["highest/named"][1:]) == pytest.approx(1, abs=1e-6)
    assert series["drifted"][-1] > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_lookup_hands_out_rows_within_the_limit_and_stores_longer_ones(
    backend: str,
) -> None:
    series = run(backend, limit="lookup").series
    # Rounding of the norm and of one product, in float32.
    assert max(series["highest/served"]) == pytest.approx(1, abs=1e-6)
    assert min(series["highest/stored"]) > 1.05
    assert series["above"] == [0, 0, 0]


@pytest.mark.parametrize("limit", Settings.LIMITS)
def test_backends_start_equal_and_agree_on_a_short_run(limit: str) -> None:
    for framework in ("torch", "tensorflow"):
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    torch, tf = (run(b, limit=limit).series for b in ("pytorch", "tf"))
    assert torch.keys() == tf.keys()
    for column, values in torch.items():
        assert values[0] == tf[column][0], column
        # Rounding, over 10 steps of a smooth loss.
        assert values == pytest.approx(tf[column], rel=1e-4, abs=1e-6), column


@pytest.mark.parametrize("backend", BACKENDS)
def test_runs_that_clip_time_every_limit(backend: str) -> None:
    summary = run(backend).summary
    names = {
        f"seconds/{what}/{limit}"
        for what in ("step", "lookup")
        for limit in Settings.LIMITS
    }
    assert summary.keys() == names
    assert min(summary.values()) > 0
    assert run(backend, limit="none").summary == {}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_does_not_depend_on_the_timing_before_it(backend: str) -> None:
    alone = run(backend, seed=3, limit="none").series
    run(backend, seed=4)
    assert run(backend, seed=3, limit="none").series == alone


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_that_leaves_the_numbers_has_diverged(backend: str) -> None:
    rate = {"name": "GradientDescent", "learning_rate": 1e30}
    outcome = run(backend, limit="none", optimizer=rate)
    assert outcome.status == "diverged"
    assert "not finite after step 5" in outcome.reason


def made_up(step: float, lookup: float, served: float) -> list[Record]:
    """Records of five seeds: time ratios lookup / clip, and norms that are served."""
    records = []
    for limit, seed in (
        (limit, seed) for limit in Settings.LIMITS for seed in range(5)
    ):
        names = (*findings.SERIES, *findings.LEFT)
        series = {name: [1.0, 1.0, 1.0] for name in names}
        if limit == "clip":
            series["highest/served"] = [1.0, 1.0, served]
        times = {
            f"seconds/{what}/{name}": 1e-3
            for what in ("step", "lookup")
            for name in Settings.LIMITS
        }
        times["seconds/lookup/lookup"] *= lookup
        times["seconds/step/clip"] *= step
        subject = {"backend": "tf", "device": "cpu"}
        what = "recommender", f"{limit}{seed}", "recommender", config(limit=limit), seed
        summary = times if limit == "clip" else {}
        records.append(Record(*what, subject, "0", "ok", "", series, summary))
    return records


def test_the_answer_quotes_times_beside_those_of_the_same_work() -> None:
    answer = findings.judge(made_up(1.5, 2.0, 1.3)).answer
    assert "takes 2.0 times as long at serving" in answer
    assert "takes 1.50 times as long as one that normalises, where two id" in answer
    assert "differ by factors of 1.00" in answer


def test_metrics_of_time_compare_two_times_of_one_run() -> None:
    records = made_up(1.5, 2.0, 1.3)
    (clipped,) = [r for r in records if r.config["limit"] == "clip" and r.seed == 0]
    assert findings.METRICS["step time"].read(clipped) == pytest.approx(1.5)
    assert findings.METRICS["lookup time"].read(clipped) == pytest.approx(2.0)
    assert np.isnan(findings.METRICS["lookup time"].read(records[0]))


def test_every_id_of_a_batch_is_looked_up_in_the_table_that_it_belongs_to() -> None:
    ids: Array = np.array([[[7, 1, 2], [8, 3, 1]]], np.int32)
    plan = training.make_plan(Settings(**config()), 0)._replace(batches=ids)
    assert plan.named("user", 0, 1).tolist() == [7, 8]
    assert plan.named("item", 0, 1).tolist() == [1, 2, 3]


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_named_rows_of_the_named_table_move(backend: str) -> None:
    settings = Settings(**config(limit="none"))
    recipe = recipe_of("recommender", settings, training.LIMITED, data.COLUMNS)
    model = trainer_of(recipe, backend, "cpu")
    plan = training.make_plan(settings, 0)
    model.reset(plan.weights)
    model.advance(plan.batches[:1])
    for name, table in model.tables().items():
        moved = np.flatnonzero((table != plan.weights[name]).any(axis=1))
        assert moved.tolist() == plan.named(name, 0, 1).tolist(), name
