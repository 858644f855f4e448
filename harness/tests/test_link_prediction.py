"""Links of Les Miserables: the data, the ranks, and what a limit promises."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.records.record import Outcome, Record
from harness.tasks.embeddings.rows import OVER
from harness.tasks.link_prediction import data, findings, metrics, training
from harness.tasks.link_prediction.settings import MARGIN, RELATIONS, Settings
from lockstep.messages.errors import LockstepError

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


def config(**changes: Any) -> dict[str, Any]:
    descent = {"name": "GradientDescent", "learning_rate": 0.03}
    base = {"optimizer": descent, "limit": "clip", "max_norm": 1.0, "start": 1.0}
    return {**base, "steps": 20, "checkpoints": 2, "batch": 16, "width": 4} | changes


def run(backend: str, seed: int = 0, **changes: Any) -> Outcome:
    return training.train(config(**changes), seed, backend, "cpu")


def test_the_data_is_the_graph_that_networkx_ships() -> None:
    networkx = pytest.importorskip("networkx", reason="networkx is not installed")
    path = Path(data.__file__).parent / "chapters.csv"
    with path.open(encoding="utf-8", newline="") as file:
        ours = {
            frozenset((line["one"], line["other"])): int(line["chapters"])
            for line in csv.DictReader(file)
        }
    edges = networkx.les_miserables_graph().edges(data="weight")
    assert ours == {frozenset((one, other)): weight for one, other, weight in edges}


def test_held_out_links_stand_both_ways_and_leave_each_character_one() -> None:
    links = data.split(np.random.default_rng(0))
    assert len(links.held_out) == 2 * data.HELD_OUT
    assert len(links.training) + len(links.held_out) == 2 * len(data.graph()[1])
    known = {tuple(link) for link in links.training}
    held_out = {tuple(link) for link in links.held_out}
    assert not known & held_out
    assert {(tail, relation, head) for head, relation, tail in held_out} == held_out
    assert set(links.training[:, 0]) == set(range(len(data.graph()[0])))


def test_a_false_link_differs_from_the_true_one_at_one_end() -> None:
    links = data.split(np.random.default_rng(0)).training
    batches = data.draw_batches(np.random.default_rng(1), links, steps=5, batch=50)
    head, _, tail, false_head, false_tail = np.moveaxis(batches, 2, 0)
    assert ((head == false_head) | (tail == false_tail)).all()
    assert {tuple(link) for link in batches[:, :, :3].reshape(-1, 3)} <= {
        tuple(link) for link in links
    }


def test_a_rank_counts_nearer_tails_but_no_other_true_ones() -> None:
    places = np.arange(len(data.graph()[0]), dtype=float)[:, None]
    relation = np.zeros((len(RELATIONS), 1))
    link = np.array([[0, 0, 5]])
    known = metrics.known_tails(data.Links(link, link[:0]))
    assert metrics.filtered_ranks(places, relation, link, known).tolist() == [5]
    known[0, 0, 3] = True
    assert metrics.filtered_ranks(places, relation, link, known).tolist() == [4]
    # Tails in one place tie: the mean of the best and the worst rank.
    places[5] = places[6]
    assert metrics.filtered_ranks(places, relation, link, known).tolist() == [4.5]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_is_that_of_the_margin_loss(backend: str) -> None:
    settings = Settings(**config(limit="none", steps=1, checkpoints=1, batch=1))
    plan = training.make_plan(settings, 0)
    head, relation, tail, false_head, false_tail = plan.batches[0, 0]
    rows = {name: table.astype(float) for name, table in plan.weights.items()}
    entity, add = rows["entity"].copy(), rows["relation"][relation]
    true = entity[head] + add - entity[tail]
    false = entity[false_head] + add - entity[false_tail]
    lengths = np.linalg.norm(true), np.linalg.norm(false)
    assert MARGIN + lengths[0] - lengths[1] > 0
    for sign, way, length, at_plus, at_minus in (
        (-1, true, lengths[0], head, tail),
        (1, false, lengths[1], false_head, false_tail),
    ):
        rows["entity"][at_plus] += sign * 0.03 * way / length
        rows["entity"][at_minus] -= sign * 0.03 * way / length
    model = trainer(settings, backend)
    model.reset(plan.weights)
    model.advance(plan.batches)
    # float32 against float64, one step.
    assert np.allclose(model.tables()["entity"], rows["entity"], atol=1e-6)


@pytest.mark.parametrize("name", ("GradientDescent", "Adam"))
@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_that_a_step_names_end_within_the_limit(backend: str, name: str) -> None:
    settings = Settings(
        **config(start=3.0, optimizer={"name": name, "learning_rate": 0.3})
    )
    plan = training.make_plan(settings, 0)
    model = trainer(settings, backend)
    model.reset(plan.weights)
    for step in range(5):
        model.advance(plan.batches[step : step + 1])
        named = plan.named("entity", step, step + 1)
        lengths = np.linalg.norm(model.tables()["entity"].astype(float), axis=1)
        assert lengths[named].max() <= OVER * settings.max_norm
        others = np.setdiff1d(np.arange(len(lengths)), plan.named("entity", 0, 5))
        assert lengths[others].max() > settings.max_norm
    relation = model.tables()["relation"].astype(float)
    assert np.linalg.norm(relation, axis=1).max() > OVER


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_does_not_depend_on_those_before_it(backend: str) -> None:
    adam = {"name": "Adam", "learning_rate": 0.01}
    alone = run(backend, seed=3, optimizer=adam)
    run(backend, seed=4, optimizer=adam)
    assert run(backend, seed=3, optimizer=adam) == alone


@pytest.mark.parametrize("limit", ("none", "clip", "lookup"))
def test_backends_start_equal_and_agree_on_a_short_run(limit: str) -> None:
    for framework in ("torch", "tensorflow"):
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    torch, tf = (run(b, limit=limit, start=2.0).series for b in ("pytorch", "tf"))
    assert torch.keys() == tf.keys()
    for column, values in torch.items():
        assert values[0] == tf[column][0], column
        # Rounding, over 20 steps; a hinge that is met within it moves some more.
        assert values == pytest.approx(tf[column], rel=1e-4, abs=1e-6), column


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_that_leaves_the_numbers_has_diverged(backend: str) -> None:
    rate = {"name": "GradientDescent", "learning_rate": 3e38}
    outcome = run(backend, limit="none", optimizer=rate)
    assert outcome.status == "diverged"
    assert "not finite after step 10" in outcome.reason
    assert len(outcome.series["step"]) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"limit": "clipp"}, "did you mean 'clip'"),
        ({"max_norm": 0}, "max_norm"),
        ({"start": -1.0}, "start"),
        ({"checkpoints": 3}, "divides steps"),
        ({"width": 0}, "width"),
        ({"optimizer": {"name": "Adma"}}, "did you mean 'Adam'"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(LockstepError, match=words):
        Settings(**config(**changes))


def made_up(mrr: dict[str, float], lost: Sequence[int] = ()) -> list[Record]:
    """Records of five seeds whose MRR ends at a number for each limit."""
    records = []
    for limit, seed in ((limit, seed) for limit in mrr for seed in range(5)):
        series = {name: [1.0, 1.0, 1.0] for name in findings.MEASURES}
        series["mrr"] = [0.1, 0.2, mrr[limit] + 0.001 * seed]
        lines = {"step": [0, 10, 20], **series}
        if limit == "none" and seed in lost:
            lines = {name: [*column[:1], np.nan] for name, column in lines.items()}
        settings = config(limit=limit)
        subject = {"backend": "pytorch", "device": "cpu"}
        records.append(
            Record(
                "link_prediction",
                f"{limit}{seed}",
                "link_prediction",
                settings,
                seed,
                subject,
                "0",
                "diverged" if seed in lost and limit == "none" else "ok",
                "",
                lines,
                {},
            )
        )
    return records


def test_the_answer_follows_from_the_ranks() -> None:
    judged = findings.judge(made_up({"none": 0.1, "clip": 0.3, "lookup": 0.3}))
    assert "this rank is lower in 1 of 1 cases" in judged.answer


def test_a_difference_that_nobody_would_mind_is_no_need() -> None:
    near = 0.3 - findings.NEGLIGIBLE / 2
    judged = findings.judge(made_up({"none": near, "clip": 0.3, "lookup": 0.3}))
    assert "no difference that matters" in judged.answer


def test_a_diverged_run_has_no_rank_at_all() -> None:
    same = {"none": 0.3, "clip": 0.3, "lookup": 0.3}
    judged = findings.judge(made_up(same, lost=range(5)))
    assert "this rank is lower in 1 of 1 cases" in judged.answer
    ends = judged.tables["ends"].set_index(["limit", "what"])["estimate"]
    assert ends["none", "mrr"] == 0
    assert ends["none", "loss"] == np.inf


def trainer(settings: Settings, backend: str) -> Any:
    place = (training.LIMITED, data.COLUMNS, backend, "cpu")
    return training.trainer_of("link_prediction", settings, *place)
