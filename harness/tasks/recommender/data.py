"""The data of a run on any backend: ratings, batches with other items, first values."""

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
"""An example is user, rated item, another item."""

HELD_OUT = 0.2
"""The share of the ratings that is held out."""


class Ratings(NamedTuple):
    """Who rated what, whatever the rating.

    Attributes:
        users, items: how many there are.
        pairs: [ratings, 2] int32: user, item.
    """

    users: int
    items: int
    pairs: Array


class Split(NamedTuple):
    """Ratings of a seed.

    Attributes:
        training, held_out: pairs as in ``Ratings``.
        counts: training ratings of each item.
    """

    training: Array
    held_out: Array
    counts: Array


@cache
def read_ratings() -> Ratings:
    """Read MovieLens 100K; ids are in the order of the file's numbers."""
    path = packaged_file("recbole", "recbole/dataset_example/ml-100k/ml-100k.inter")
    text = np.loadtxt(path, np.int64, skiprows=1, usecols=(0, 1))
    columns = [np.unique(column, return_inverse=True) for column in text.T]
    pairs = np.column_stack([ids for _, ids in columns]).astype(np.int32)
    users, items = (len(names) for names, _ in columns)
    return Ratings(users, items, pairs)


@lru_cache(maxsize=1)
def draw_split(seed: int) -> Split:
    """Hold out a fifth of the ratings. That of the latest seed is kept for its runs."""
    ratings = read_ratings()
    order = np.random.default_rng((seed, 0)).permutation(len(ratings.pairs))
    held_out, training = np.split(order, [round(HELD_OUT * len(order))])
    counts = np.bincount(ratings.pairs[training, 1], minlength=ratings.items)
    return Split(ratings.pairs[training], ratings.pairs[held_out], counts)


def draw_batches(
    stream: np.random.Generator, pairs: Array, steps: int, batch: int
) -> Array:
    """Draw examples [steps, batch, 3] int32; all items are as likely for the other."""
    sample = pairs[stream.integers(len(pairs), size=(steps, batch))]
    items = read_ratings().items
    other = stream.integers(items, size=(steps, batch, 1), dtype=np.int32)
    return np.concatenate([sample, other], axis=2)


def draw_weights(stream: np.random.Generator, settings: Settings) -> dict[str, Array]:
    """Draw normal rows whose norms have the root mean square ``start``."""
    deviation = settings.start / np.sqrt(settings.width)
    ratings = read_ratings()
    return {
        name: (deviation * stream.standard_normal((rows, settings.width))).astype("f4")
        for name, rows in (("user", ratings.users), ("item", ratings.items))
    }


def groups(counts: Array) -> dict[str, Array]:
    """Return the frequent and the rare items: the first tenth and the last half."""
    order, items = np.argsort(-counts, kind="stable"), len(counts)
    return dict(zip(GROUPS, (order[: items // 10], order[items // 2 :]), strict=True))
