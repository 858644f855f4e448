"""The data of a run on any backend: links, batches with false links, first rows."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from harness.tasks.embeddings.trainer import Columns
from harness.tasks.link_prediction.settings import Settings
from harness.tasks.packaged import packaged_file
from lockstep.interface import Array

__all__ = ["COLUMNS", "Graph", "draw_batches", "draw_weights", "read_graph"]

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
