"""The metrics of a run in NumPy: loss, filtered ranks and norms."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from harness.tasks.embeddings.rows import OVER, norms
from harness.tasks.embeddings.trainer import Rows
from harness.tasks.link_prediction.data import Graph, read_graph
from harness.tasks.link_prediction.settings import Settings
from lockstep.interface import Array

__all__ = ["TOP", "Queries", "chance", "filtered_ranks", "make_queries", "measure"]

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
