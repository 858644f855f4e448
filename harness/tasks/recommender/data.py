"""The data of a run on any backend: ratings, batches with other items, first rows."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from harness.tasks.embeddings.trainer import Columns
from harness.tasks.packaged import packaged_file
from harness.tasks.recommender.settings import GROUPS, Settings
from lockstep.interface import Array

__all__ = [
    "COLUMNS",
    "Ratings",
    "Split",
    "draw_batches",
    "draw_split",
    "draw_weights",
    "groups",
    "read_ratings",
]

COLUMNS: Columns = (("user", (0,)), ("item", (1, 2)))
"""The columns of an example: user, rated item, another item."""

HELD_OUT = 0.2
"""The share of held-out ratings."""


class Ratings(NamedTuple):
    """Pairs of user and rated item, without the values of the ratings.

    Attributes:
        users, items: the numbers of users and items.
        pairs: [ratings, 2] int32: user, item.
    """

    users: int
    items: int
    pairs: Array


class Split(NamedTuple):
    """The split ratings of a seed.

    Attributes:
        training, held_out: pairs as in ``Ratings``.
        counts: the number of training ratings of each item.
    """

    training: Array
    held_out: Array
    counts: Array


@cache
def read_ratings() -> Ratings:
    """Read MovieLens 100K; ids are in the order of the file's ids."""
    path = packaged_file("recbole", "recbole/dataset_example/ml-100k/ml-100k.inter")
    text = np.loadtxt(path, np.int64, skiprows=1, usecols=(0, 1))
    columns = [np.unique(column, return_inverse=True) for column in text.T]
    pairs = np.column_stack([ids for _, ids in columns]).astype(np.int32)
    users, items = (len(names) for names, _ in columns)
    return Ratings(users, items, pairs)


@lru_cache(maxsize=1)
def draw_split(seed: int) -> Split:
    """Hold out a fifth of the ratings; the split of the latest seed is cached."""
    ratings = read_ratings()
    order = np.random.default_rng((seed, 0)).permutation(len(ratings.pairs))
    held_out, training = np.split(order, [round(HELD_OUT * len(order))])
    counts = np.bincount(ratings.pairs[training, 1], minlength=ratings.items)
    return Split(ratings.pairs[training], ratings.pairs[held_out], counts)


def draw_batches(
    stream: np.random.Generator, pairs: Array, steps: int, batch: int
) -> Array:
    """Draw examples [steps, batch, 3] int32; the other item is uniformly drawn."""
    sample = pairs[stream.integers(len(pairs), size=(steps, batch))]
    items = read_ratings().items
    other = stream.integers(items, size=(steps, batch, 1), dtype=np.int32)
    return np.concatenate([sample, other], axis=2)


def draw_weights(stream: np.random.Generator, settings: Settings) -> dict[str, Array]:
    """Draw normal rows; the root mean square of their norms is ``start``."""
    deviation = settings.start / np.sqrt(settings.width)
    ratings = read_ratings()
    return {
        name: (deviation * stream.standard_normal((rows, settings.width))).astype("f4")
        for name, rows in (("user", ratings.users), ("item", ratings.items))
    }


def groups(counts: Array) -> dict[str, Array]:
    """Return the frequent items, the first tenth, and the rare ones, the last half."""
    order, items = np.argsort(-counts, kind="stable"), len(counts)
    return dict(zip(GROUPS, (order[: items // 10], order[items // 2 :]), strict=True))
