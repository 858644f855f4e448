"""Links of knowledge graphs: the task, the ranks, and what limits promise."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from harness.records.record import Outcome, Record
from harness.tasks.embeddings.training import OVER, norms
from harness.tasks.link_prediction import report, task
from harness.tasks.link_prediction.task import Settings
from lockstep import registry
from lockstep.interface import Array

BACKENDS = ("pytorch", "tf", "keras3")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pykeen") is None, reason="pykeen is not installed"
)


def graph_of(name: str, **margins: float) -> dict[str, Any]:
    """A graph with a margin of 1 for each limit but those that are given."""
    return {"name": name, "margin": dict.fromkeys(task.LIMITS, 1.0) | margins}


def config(**changes: Any) -> dict[str, Any]:
    descent = {"name": "GradientDescent", "learning_rate": 0.03}
    base = {"optimizer": descent, "limit": "clip", "max_norm": 1.0, "start": 1.0}
    base |= {"graph": graph_of("Nations"), "penalty": 0.1}
    return {**base, "steps": 20, "checkpoints": 2, "batch": 16, "width": 4} | changes


def run(backend: str, seed: int = 0, **changes: Any) -> Outcome:
    pytest.importorskip(registry.find(backend).framework)
    return task.train(config(**changes), seed, backend, "cpu")


def trained(settings: Settings, backend: str, steps: int) -> dict[str, Array]:
    """The tables of seed 0 after some steps."""
    pytest.importorskip(registry.find(backend).framework)
    plan = task.make_plan(settings, 0)
    model = task.make_trainer(settings, plan, backend, "cpu")
    model.reset(plan.weights)
    model.advance(plan.batches[:steps])
    tables: dict[str, Array] = model.tables()
    return tables


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("UMLS", (135, 46, 5216, 652, 661)),
        ("Kinships", (104, 25, 8544, 1068, 1074)),
        ("Nations", (14, 55, 1592, 199, 201)),
    ],
)
def test_a_graph_has_the_sizes_that_its_package_states(
    name: str, shape: tuple[int, ...]
) -> None:
    graph = task.read_graph(name)
    parts = [graph.training, graph.validation, graph.test]
    assert (graph.entities, graph.relations, *map(len, parts)) == shape
    every = {tuple(link) for part in parts for link in part}
    assert len(every) == sum(map(len, parts))


def test_a_false_link_differs_from_the_true_one_at_one_end() -> None:
    graph = task.read_graph("Nations")
    batches = task.draw_batches(np.random.default_rng(1), graph, steps=5, batch=50)
    head, _, tail, false_head, false_tail = np.moveaxis(batches, 2, 0)
    assert ((head == false_head) | (tail == false_tail)).all()
    assert {tuple(link) for link in batches[:, :, :3].reshape(-1, 3)} <= {
        tuple(link) for link in graph.training
    }


def test_a_rank_counts_nearer_entities_but_none_that_make_another_link() -> None:
    """Entities lie on a line; the relation leads three places on."""
    places = np.arange(8, dtype=float)[:, None]
    relation = np.full((1, 1), 3.0)
    link, none = np.array([[0, 0, 5]]), np.empty((0, 3), int)
    graph = task.Graph(8, 1, none, none, link)
    # Of tails, those at 3, 4 and 2 are nearer, and 1 as near; of heads 2, 1 and 3, and
    # 4 as near.
    others = task.others(graph, link)
    assert task.filtered_ranks(places, relation, link, others).tolist() == [4.5, 4.5]
    graph = graph._replace(training=np.array([[0, 0, 3], [0, 0, 1], [2, 0, 5]]))
    others = task.others(graph, link)
    assert task.filtered_ranks(places, relation, link, others).tolist() == [3, 3.5]


def test_chance_is_the_mean_over_random_rows() -> None:
    stream, graph = np.random.default_rng(0), task.read_graph("UMLS")
    asked = task.queries("UMLS", "test")
    ranks = np.concatenate(
        [
            task.filtered_ranks(
                stream.standard_normal((graph.entities, 4)),
                stream.standard_normal((graph.relations, 4)),
                *asked,
            )
            for _ in range(20)
        ]
    )
    # Rows of one draw rank all links alike, so 20 draws are few.
    expected = task.chance("UMLS")
    assert (1 / ranks).mean() == pytest.approx(expected, rel=0.1)


@pytest.mark.sample(2)
@pytest.mark.parametrize("penalty", (0.0, 0.1))
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_is_that_of_the_loss(backend: str, penalty: float) -> None:
    limit = "penalty" if penalty else "none"
    margins = graph_of("Nations", **{limit: 2.0})
    sizes = {"steps": 1, "checkpoints": 1, "batch": 1}
    settings = Settings(**config(limit=limit, graph=margins, **sizes))
    assert settings.margin == 2
    plan = task.make_plan(settings, 0)
    head, relation, tail, false_head, false_tail = plan.batches[0, 0]
    rows = {name: table.astype(float) for name, table in plan.weights.items()}
    entity, add = rows["entity"].copy(), rows["relation"][relation]
    true = entity[head] + add - entity[tail]
    false = entity[false_head] + add - entity[false_tail]
    lengths = np.linalg.norm(true), np.linalg.norm(false)
    assert settings.margin + lengths[0] - lengths[1] > 0
    for sign, way, length, at_plus, at_minus in (
        (-1, true, lengths[0], head, tail),
        (1, false, lengths[1], false_head, false_tail),
    ):
        rows["entity"][at_plus] += sign * 0.03 * way / length
        rows["entity"][at_minus] -= sign * 0.03 * way / length
    for named in (head, tail, false_head, false_tail):
        rows["entity"][named] -= 0.03 * 2 * penalty * entity[named]
    entities = trained(settings, backend, 1)["entity"]
    # float32 against float64, one step.
    assert np.allclose(entities, rows["entity"], atol=1e-6)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ("GradientDescent", "Adam"))
@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_that_a_step_names_end_within_the_limit(backend: str, name: str) -> None:
    optimizer = {"name": name, "learning_rate": 0.3}
    settings = Settings(
        **config(graph=graph_of("UMLS"), start=3.0, optimizer=optimizer)
    )
    plan = task.make_plan(settings, 0)
    for step in range(3):
        tables = trained(settings, backend, step + 1)
        named, lengths = plan.ids("entity", step, step + 1), norms(tables["entity"])
        assert lengths[named].max() <= OVER * settings.max_norm
        others = np.setdiff1d(np.arange(len(lengths)), plan.ids("entity", 0, 3))
        assert lengths[others].max() > settings.max_norm
    assert norms(tables["relation"]).max() > OVER


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_that_no_step_names_are_normalised_as_well(backend: str) -> None:
    settings = Settings(**config(graph=graph_of("UMLS"), limit="normalise", start=3.0))
    lengths = norms(trained(settings, backend, 1)["entity"])
    named = task.make_plan(settings, 0).ids("entity", 0, 1)
    others = np.setdiff1d(np.arange(len(lengths)), named)
    # Rounding of the norm and of one product, in float32.
    assert lengths[others] == pytest.approx(settings.max_norm, abs=1e-6)
    assert np.abs(lengths[named] - settings.max_norm).max() > 1e-3


@pytest.mark.sample(3)
@pytest.mark.parametrize("limit", task.LIMITS)
@pytest.mark.parametrize("other", ("tf", "keras3"))
def test_backends_start_equal_and_agree_on_a_short_run(limit: str, other: str) -> None:
    for framework in ("torch", "tensorflow", "keras"):
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    torch, theirs = (run(b, limit=limit).series for b in ("pytorch", other))
    assert torch.keys() == theirs.keys()
    for column, values in torch.items():
        assert values[0] == theirs[column][0], column
        # Rounding, over 20 steps; a hinge that is met within it moves some more.
        assert values == pytest.approx(theirs[column], rel=1e-4, abs=1e-6), column


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_that_leaves_the_numbers_has_diverged(backend: str) -> None:
    rate = {"name": "GradientDescent", "learning_rate": 3e38}
    outcome = run(backend, limit="none", optimizer=rate)
    assert outcome.status == "diverged"
    assert "not finite after step 10" in outcome.reason
    assert len(outcome.series["step"]) == 2


def record(limit: str, **series: list[float]) -> Record:
    """Return the record of a run that diverged after the first measurement."""
    return Record(
        experiment="link_prediction",
        id=limit,
        task="link_prediction",
        config=config(limit=limit),
        seed=0,
        subject={"backend": "pytorch", "device": "cpu"},
        environment="0",
        status="diverged",
        reason="",
        series={"step": [0.0, 10.0], **series},
        summary={"mrr/chance": 0.05},
    )


def test_a_diverged_run_has_no_rank_at_all() -> None:
    lost = {name: [1.0, np.nan] for name in report.SERIES}
    ends = report.judge([record("none", **lost)]).tables["ends"]
    values = ends.set_index("what")["median"]
    assert values["mrr"] == 0
    assert values["norm/highest"] == np.inf
