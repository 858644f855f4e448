"""Link prediction in two knowledge graphs with TransE.

A link (head, relation, tail) is likely if the sum of the rows of head and relation is
close to the row of tail. TransE's authors limit the rows of entities to norm 1, because
otherwise training could lower its loss by making all rows long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from pydantic import Field

from harness.records.record import Outcome
from harness.tasks.embeddings.training import (
    EmbeddingSettings,
    Plan,
    Rows,
    norms,
    trainer_of,
    walk,
)
from harness.tasks.packaged import packaged_file
from harness.tasks.schema import Real, settings
from lockstep.interface import Array

LIMITS = ("none", "clip", "normalise", "penalty")
Limit: TypeAlias = Literal["none", "clip", "normalise", "penalty"]


@settings
class GraphSettings:
    """The graph, and for each limit the margin between true and false links.

    Longer rows need a larger margin.
    """

    name: Literal["UMLS", "Kinships", "Nations"]
    margin: Annotated[dict[Limit, Real], Field(min_length=len(LIMITS))]


@settings
class Settings(EmbeddingSettings):
    """The settings of one run, in addition to those of all tasks with embeddings.

    Attributes:
        penalty: if ``limit`` is ``penalty``, the factor of the squares of the batch's
            entities in the loss.
    """

    limit: Limit
    graph: GraphSettings
    penalty: Real

    @property
    def margin(self) -> float:
        """The margin between true and false links."""
        return self.graph.margin[self.limit]


COLUMNS = {"entity": (0, 2, 3, 4), "relation": (1,)}
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
    names = entities, relations, entities
    links = [
        np.stack([*map(np.searchsorted, names, text.T)], axis=1).astype(np.int32)
        for text in texts
    ]
    return Graph(len(entities), len(relations), *links)


def _read(graph: str, part: str) -> Array:
    """Return the links of a file as strings [n, 3]."""
    path = packaged_file("pykeen", f"pykeen/datasets/{graph.lower()}/{part}.txt")
    return np.array([line.split("\t") for line in path.read_text("utf-8").splitlines()])


def draw_batches(
    stream: np.random.Generator, graph: Graph, steps: int, batch: int
) -> Array:
    """Draw links [steps, batch, 5], each with a false one: another head or tail."""
    links, shape = graph.training, (steps, batch)
    sample = links[stream.integers(len(links), size=shape)]
    head, relation, tail = np.moveaxis(sample, 2, 0)
    other = stream.integers(graph.entities, size=shape, dtype=np.int32)
    at_head = stream.random(shape) < 0.5
    false_head = np.where(at_head, other, head)
    false_tail = np.where(at_head, tail, other)
    return np.stack([head, relation, tail, false_head, false_tail], axis=2)


def make_plan(of: Settings, seed: int) -> Plan:
    """Draw the data of one run, which does not depend on limit and optimizer.

    The elements of rows are uniform with mean 0; relations are scaled to norm 1.
    """
    graph = read_graph(of.graph.name)
    streams = [np.random.default_rng((seed, stream)) for stream in range(2)]
    batches = draw_batches(streams[0], graph, of.steps, of.batch)
    bound = np.sqrt(3 / of.width)
    entity, relation = (
        streams[1].uniform(-bound, bound, (rows, of.width))
        for rows in (graph.entities, graph.relations)
    )
    relation /= np.linalg.norm(relation, axis=1, keepdims=True)
    weights = {"entity": of.start * entity, "relation": relation}
    tables = {name: table.astype(np.float32) for name, table in weights.items()}
    return Plan(tables, batches, COLUMNS, ("entity",))


@cache
def queries(graph: str, part: str) -> tuple[Array, Array]:
    """Return the links of a part, ``validation`` or ``test``, with :func:`others`."""
    content = read_graph(graph)
    links = getattr(content, part)
    return links, others(content, links)


def others(graph: Graph, links: Array) -> Array:
    """Return whether an entity in place of a link's end makes no link of the graph.

    [2 n, entities] bool: in place of the tail of each of n links, then of the head.
    """
    known = np.zeros((graph.entities, graph.relations, graph.entities), bool)
    every = np.concatenate([graph.training, graph.validation, graph.test])
    known[tuple(every.T)] = True
    head, kind, tail = links.T
    return np.asarray(~np.concatenate([known[head, kind], known[:, kind, tail].T]))


def filtered_ranks(
    entity: Array, relation: Array, links: Array, others: Array
) -> Array:
    """Return the rank of each answer among the entities that make no link.

    Each link is a query for its tail and one for its head. A tie counts as half a rank.
    """
    from scipy.spatial.distance import cdist  # Settings are read without it.

    head, kind, tail = links.T
    places = [entity[head] + relation[kind], entity[tail] - relation[kind]]
    distances = cdist(np.concatenate(places), entity)
    answers = np.concatenate([tail, head])[:, None].astype(int)
    true = np.take_along_axis(distances, answers, axis=1)
    nearer, tied = (distances < true) & others, (distances == true) & others
    return np.asarray(1 + nearer.sum(axis=1) + tied.sum(axis=1) / 2)


@cache
def chance(graph: str) -> float:
    """Return the mean of 1 / rank of random ranks over the test links.

    Among n entities it is (1 + 1/2 + ... + 1/n) / n.
    """
    sizes = 1 + queries(graph, "test")[1].sum(axis=1)
    inverse = np.cumsum(1 / np.arange(1, sizes.max() + 1))[sizes - 1] / sizes
    return float(inverse.mean())


def measure(_: int, rows: Rows, of: Settings, examples: Array) -> Mapping[str, float]:
    """Measure tables.

    ``loss``: mean of the margin loss over fixed ``examples`` of training links.
    ``mrr``: mean of 1 / rank over test links; ``mrr/validation``: over validation
    links, to choose learning rates. ``norm/highest``: of the entities' rows.
    """
    entity, relation = (rows[name].astype(float) for name in ("entity", "relation"))
    head, kind, tail, false_head, false_tail = examples.T
    true, false = (
        np.linalg.norm(entity[one] + relation[kind] - entity[other], axis=1)
        for one, other in ((head, tail), (false_head, false_tail))
    )
    ranks, validation = (
        filtered_ranks(entity, relation, *queries(of.graph.name, part))
        for part in ("test", "validation")
    )
    return {
        "loss": float(np.maximum(0, of.margin + true - false).mean()),
        "mrr": float((1 / ranks).mean()),
        "mrr/validation": float((1 / validation).mean()),
        "norm/highest": float(norms(rows["entity"]).max()),
    }


def make_trainer(of: Settings, plan: Plan, backend: str, device: str) -> Any:
    """Return the trainer of a run; its loss has a penalty if that is the limit."""
    penalty = of.penalty if of.limit == "penalty" else 0.0
    numbers = {"margin": of.margin, "penalty": penalty}
    return trainer_of("link_prediction", of, plan, backend, device, numbers)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run. Summary: ``mrr/chance``, of random ranks."""
    of = Settings(**config)
    plan, graph = make_plan(of, seed), read_graph(of.graph.name)
    stream = np.random.default_rng((seed, 2))
    examples = draw_batches(stream, graph, 1, len(graph.training))[0]
    trainer = make_trainer(of, plan, backend, device)
    outcome = walk(of, plan, trainer, partial(measure, of=of, examples=examples))
    return replace(outcome, summary={"mrr/chance": chance(of.graph.name)})
