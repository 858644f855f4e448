"""The settings of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from harness.records.record import Outcome
from harness.tasks.embeddings.rows import OVER, norms
from harness.tasks.embeddings.settings import EmbeddingSettings
from harness.tasks.embeddings.trainer import (
    Columns,
    Plan,
    Recipe,
    Rows,
    recipe_of,
    trainer_of,
    walk,
)
from harness.tasks.embeddings.trainer import prepare as prepare
from harness.tasks.packaged import packaged_file
from harness.tasks.settings import require, require_number
from lockstep.errors import unknown_name
from lockstep.interface import Array

GRAPHS = ("UMLS", "Kinships", "Nations")


@dataclass(frozen=True)
class Settings(EmbeddingSettings):
    """The settings of one run, in addition to those of all tasks with embeddings.

    Attributes:
        graph: ``name``, one of ``GRAPHS``, and ``margin``: for each limit, the margin
            between true and false links. Longer rows need a larger margin.
        start: the root mean square of the initial norms of the entities' rows.
        penalty: if ``limit`` is ``penalty``, the factor of the squares of the batch's
            entities in the loss.
    """

    LIMITS: ClassVar[tuple[str, ...]] = ("none", "clip", "normalise", "penalty")

    graph: Mapping[str, Any]
    start: float
    penalty: float

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("start", "penalty"):
            require_number(self, name)
            object.__setattr__(self, name, float(getattr(self, name)))
        table = isinstance(self.graph, Mapping) and set(self.graph) == {
            "name",
            "margin",
        }
        require(table, "graph", "a table with name and margin", self.graph)
        if self.name not in GRAPHS:
            raise unknown_name("graph.name", self.name, GRAPHS)
        margins = self.graph["margin"]
        each = isinstance(margins, Mapping) and set(margins) == set(self.LIMITS)
        require(each, "graph.margin", "a number for each limit", margins)
        require_number(SimpleNamespace(**margins), *margins)
        numbers = {name: float(margin) for name, margin in margins.items()}
        graph = {"name": self.name, "margin": numbers}
        object.__setattr__(self, "graph", graph)

    @property
    def name(self) -> str:
        """The name of the graph."""
        return str(self.graph["name"])

    @property
    def margin(self) -> float:
        """The margin between true and false links."""
        margin: float = self.graph["margin"][self.limit]
        return margin


COLUMNS: Columns = (("entity", (0, 2, 3, 4)), ("relation", (1,)))
"""The columns of an example: head, relation, tail, false head, false tail."""

PARTS = ("train", "valid", "test")
"""The files of a graph in PyKEEN, with the usual split."""


class Graph(NamedTuple):
    """A knowledge graph. Links are [n, 3] int32: head, relation, tail."""

    entities: int
    relations: int
    training: Array
    validation: Array
    test: Array


@cache
def read_graph(name: str) -> Graph:
    """Read a graph with its split; ids are in alphabetical order."""
    texts = [_read(name, part) for part in PARTS]
    every = np.concatenate(texts)
    entities, relations = np.unique(every[:, [0, 2]]), np.unique(every[:, 1])
    links = [
        np.column_stack(
            [
                np.searchsorted(names, text[:, column])
                for column, names in enumerate((entities, relations, entities))
            ]
        ).astype(np.int32)
        for text in texts
    ]
    return Graph(len(entities), len(relations), *links)


def draw_batches(
    stream: np.random.Generator, graph: Graph, steps: int, batch: int
) -> Array:
    """Draw links [steps, batch, 5], each with a false one: another head or tail."""
    links = graph.training
    sample = links[stream.integers(len(links), size=(steps, batch))]
    head, relation, tail = np.moveaxis(sample, 2, 0)
    other = stream.integers(graph.entities, size=(steps, batch), dtype=np.int32)
    at_head = stream.random((steps, batch)) < 0.5
    false_head, false_tail = (
        np.where(at_head, other, head),
        np.where(at_head, tail, other),
    )
    return np.stack([head, relation, tail, false_head, false_tail], axis=2)


def draw_weights(
    stream: np.random.Generator, graph: Graph, settings: Settings
) -> dict[str, Array]:
    """Draw uniform elements with mean 0, then scale relations to norm 1."""
    bound = np.sqrt(3 / settings.width)
    entity = stream.uniform(-bound, bound, (graph.entities, settings.width))
    relation = stream.uniform(-bound, bound, (graph.relations, settings.width))
    relation /= np.linalg.norm(relation, axis=1, keepdims=True)
    weights = {"entity": settings.start * entity, "relation": relation}
    return {name: table.astype(np.float32) for name, table in weights.items()}


def _read(graph: str, part: str) -> Array:
    """Return the links of a file as strings [n, 3]."""
    path = packaged_file("pykeen", f"pykeen/datasets/{graph.lower()}/{part}.txt")
    lines = path.read_text("utf-8").splitlines()
    return np.array([line.split("\t") for line in lines])


TOP = 10


class Queries(NamedTuple):
    """Links, each with a query for its tail and one for its head.

    Attributes:
        links: [n, 3] int32.
        others: whether an entity in place of the tail, then of the head, makes no link
            of the graph: [2 n, entities] bool.
    """

    links: Array
    others: Array


def measure(rows: Rows, settings: Settings, examples: Array) -> Mapping[str, float]:
    """Measure tables.

    ``loss``: mean of the margin loss over fixed ``examples`` of training links.
    ``mrr``, ``hits``: mean of 1 / rank and share of ranks <= 10, over test links.
    ``mrr/validation``: over validation links, to choose learning rates.
    ``norm/median``, ``norm/highest``: norms of the entities' rows. ``above``: the share
    of these rows above the limit.
    """
    entity, relation = (rows[name].astype(float) for name in ("entity", "relation"))
    head, kind, tail, false_head, false_tail = examples.T
    true = np.linalg.norm(entity[head] + relation[kind] - entity[tail], axis=1)
    false = np.linalg.norm(
        entity[false_head] + relation[kind] - entity[false_tail], axis=1
    )
    ranks, validation = (
        filtered_ranks(entity, relation, queries(settings.name, part))
        for part in ("test", "validation")
    )
    lengths = norms(rows["entity"])
    return {
        "loss": float(np.maximum(0, settings.margin + true - false).mean()),
        "mrr": float((1 / ranks).mean()),
        "mrr/validation": float((1 / validation).mean()),
        "hits": float((ranks <= TOP).mean()),
        "norm/median": float(np.median(lengths)),
        "norm/highest": float(lengths.max()),
        "above": float((lengths > OVER * settings.max_norm).mean()),
    }


@cache
def queries(graph: str, part: str) -> Queries:
    """Return the queries for the links of a part, ``validation`` or ``test``."""
    content = read_graph(graph)
    return make_queries(content, getattr(content, part))


def make_queries(graph: Graph, links: Array) -> Queries:
    """Return the queries for ``links``; known links of all parts are filtered out."""
    known = np.zeros((graph.entities, graph.relations, graph.entities), bool)
    every = np.concatenate([graph.training, graph.validation, graph.test])
    known[tuple(every.T)] = True
    head, kind, tail = links.T
    return Queries(links, ~np.concatenate([known[head, kind], known[:, kind, tail].T]))


def filtered_ranks(entity: Array, relation: Array, asked: Queries) -> Array:
    """Return the rank of each answer among the entities that make no link.

    A tie counts as half a rank.
    """
    from scipy.spatial.distance import cdist  # Settings are read without it.

    head, kind, tail = asked.links.T
    places = [entity[head] + relation[kind], entity[tail] - relation[kind]]
    distances = cdist(np.concatenate(places), entity)
    answers = np.concatenate([tail, head])[:, None].astype(int)
    true = np.take_along_axis(distances, answers, axis=1)
    nearer = (distances < true) & asked.others
    tied = (distances == true) & asked.others
    ranks: Array = 1 + nearer.sum(axis=1) + tied.sum(axis=1) / 2
    return ranks


@cache
def chance(graph: str) -> Mapping[str, float]:
    """Return the expected metrics of random ranks, the mean over test links.

    Among n entities, the mean of 1 / rank is (1 + 1/2 + ... + 1/n) / n, and a rank is
    up to 10 with probability 10 / n.
    """
    sizes = 1 + queries(graph, "test").others.sum(axis=1)
    inverse = np.cumsum(1 / np.arange(1, sizes.max() + 1))[sizes - 1] / sizes
    return {
        "mrr/chance": float(inverse.mean()),
        "hits/chance": float(np.minimum(1, TOP / sizes).mean()),
    }


LIMITED = ("entity",)


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the data of one run, which does not depend on limit and optimizer."""
    graph = read_graph(settings.name)
    streams = [np.random.default_rng((seed, stream)) for stream in range(3)]
    batches = draw_batches(streams[0], graph, settings.steps, settings.batch)
    weights = draw_weights(streams[1], graph, settings)
    examples = draw_batches(streams[2], graph, 1, len(graph.training))[0]
    of_rows = partial(measure, settings=settings, examples=examples)
    return Plan(weights, batches, COLUMNS, lambda _, rows: of_rows(rows))


def make_recipe(settings: Settings) -> Recipe:
    """Return the recipe of a run; its loss has a penalty if that is the limit."""
    penalty = settings.penalty if settings.limit == "penalty" else 0.0
    numbers = {"margin": settings.margin, "penalty": penalty}
    return recipe_of("link_prediction", settings, LIMITED, COLUMNS, **numbers)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run. Summary: the metrics of random ranks."""
    settings = Settings(**config)
    plan = make_plan(settings, seed)
    trainer = trainer_of(make_recipe(settings), backend, device)
    outcome = walk(settings, plan, trainer)
    return replace(outcome, summary=dict(chance(settings.name)))
