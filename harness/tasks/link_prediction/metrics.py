"""How a run is measured: loss, filtered ranks and norms, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.tasks.embeddings.rows import norms, served
from harness.tasks.embeddings.trainer import Rows
from harness.tasks.link_prediction.data import Links, graph
from harness.tasks.link_prediction.settings import MARGIN, RELATIONS, Settings
from lockstep.interface import Array

__all__ = ["TOP", "filtered_ranks", "known_tails", "measure"]

TOP = 10


def measure(
    rows: Rows, settings: Settings, links: Links, examples: Array, known: Array
) -> Mapping[str, float]:
    """Measure tables.

    ``loss``: mean of the margin loss over fixed ``examples`` of training links.
    ``mrr``, ``hits``: mean of 1 / rank and share of ranks <= 10, over held-out links.
    ``norm/median``, ``norm/highest``: of the entities' rows, as they are used.
    ``stored/highest``: of the entities' rows in the table.
    """
    entity = served(rows["entity"], settings)
    relation = rows["relation"].astype(np.float64)
    head, kind, tail, false_head, false_tail = examples.T
    true = np.linalg.norm(entity[head] + relation[kind] - entity[tail], axis=1)
    false = np.linalg.norm(
        entity[false_head] + relation[kind] - entity[false_tail], axis=1
    )
    ranks = filtered_ranks(entity, relation, links.held_out, known)
    used = np.linalg.norm(entity, axis=1)
    return {
        "loss": float(np.maximum(0, MARGIN + true - false).mean()),
        "mrr": float((1 / ranks).mean()),
        "hits": float((ranks <= TOP).mean()),
        "norm/median": float(np.median(used)),
        "norm/highest": float(used.max()),
        "stored/highest": float(norms(rows["entity"]).max()),
    }


def known_tails(links: Links) -> Array:
    """Return whether (head, relation, tail) is a link: [entities, relations, entities].

    An entity counts as linked to itself, so that it is never a candidate.
    """
    entities = len(graph()[0])
    known = np.zeros((entities, len(RELATIONS), entities), bool)
    for head, relation, tail in np.concatenate(links):
        known[head, relation, tail] = True
    known[np.arange(entities), :, np.arange(entities)] = True
    return known


def filtered_ranks(entity: Array, relation: Array, links: Array, known: Array) -> Array:
    """Return the rank of each link's tail among all tails that make no other link.

    Ties count half. Since links stand both ways, this ranks heads as well.
    """
    head, kind, tail = links.T
    target = (entity[head] + relation[kind])[:, None]
    distances = np.linalg.norm(target - entity[None], axis=2)
    true = np.take_along_axis(distances, tail[:, None].astype(int), axis=1)
    candidates = ~known[head, kind]
    nearer = (distances < true) & candidates
    tied = (distances == true) & candidates
    ranks: Array = 1 + nearer.sum(axis=1) + tied.sum(axis=1) / 2
    return ranks
