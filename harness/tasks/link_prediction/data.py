"""The data of a run on any backend: links, batches with false links, first values."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from harness.tasks.embeddings.trainer import Columns
from harness.tasks.link_prediction.settings import RELATIONS, Settings
from lockstep.interface import Array

__all__ = ["COLUMNS", "Links", "draw_batches", "draw_weights", "graph", "split"]

COLUMNS: Columns = (("entity", (0, 2, 3, 4)), ("relation", (1,)))
"""An example is head, relation, tail, false head, false tail."""

HELD_OUT = 40
"""Pairs of characters that are held out; each gives two links."""


class Links(NamedTuple):
    """Links [n, 3] int32 as head, relation, tail; each also the other way round."""

    training: Array
    held_out: Array


@cache
def graph() -> tuple[list[str], Array]:
    """Return the characters, and pairs [254, 3] as one, other, relation."""
    path = Path(__file__).parent / "chapters.csv"
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    names = sorted({line[end] for line in lines for end in ("one", "other")})
    ids = {name: k for k, name in enumerate(names)}
    chapters = np.array([int(line["chapters"]) for line in lines])
    relations = np.searchsorted(RELATIONS, chapters, side="right") - 1
    ends = [[ids[line["one"]], ids[line["other"]]] for line in lines]
    return names, np.column_stack([ends, relations]).astype(np.int32)


def split(stream: np.random.Generator) -> Links:
    """Hold out pairs whose characters both keep another link for training."""
    names, pairs = graph()
    left = np.bincount(pairs[:, :2].ravel(), minlength=len(names))
    held_out = np.zeros(len(pairs), bool)
    for k in stream.permutation(len(pairs)):
        if held_out.sum() < HELD_OUT and (left[pairs[k, :2]] > 1).all():
            left[pairs[k, :2]] -= 1
            held_out[k] = True
    return Links(_both_ways(pairs[~held_out]), _both_ways(pairs[held_out]))


def draw_batches(
    stream: np.random.Generator, links: Array, steps: int, batch: int
) -> Array:
    """Draw links [steps, batch, 5] with a false one each: head or tail is another."""
    entities = len(graph()[0])
    sample = links[stream.integers(len(links), size=(steps, batch))]
    head, relation, tail = np.moveaxis(sample, 2, 0)
    other = stream.integers(entities, size=(steps, batch), dtype=np.int32)
    at_head = stream.random((steps, batch)) < 0.5
    false_head, false_tail = (
        np.where(at_head, other, head),
        np.where(at_head, tail, other),
    )
    return np.stack([head, relation, tail, false_head, false_tail], axis=2)


def draw_weights(stream: np.random.Generator, settings: Settings) -> dict[str, Array]:
    """Draw entries uniformly, with mean 0; then give relations norm 1.

    TransE draws entries of size up to 6 / sqrt(width): ``start`` = 6 / sqrt(3) = 3.46.
    """
    bound = np.sqrt(3 / settings.width)
    entity = stream.uniform(-bound, bound, (len(graph()[0]), settings.width))
    relation = stream.uniform(-bound, bound, (len(RELATIONS), settings.width))
    relation /= np.linalg.norm(relation, axis=1, keepdims=True)
    weights = {"entity": settings.start * entity, "relation": relation}
    return {name: table.astype(np.float32) for name, table in weights.items()}


def _both_ways(pairs: Array) -> Array:
    one, other, relation = pairs.T
    there, back = (one, relation, other), (other, relation, one)
    return np.concatenate([np.stack(there, axis=1), np.stack(back, axis=1)])
