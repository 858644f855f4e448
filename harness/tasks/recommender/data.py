"""The data of a run on any backend: true and false choices, and first values."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from harness.tasks.embeddings.trainer import Columns
from harness.tasks.recommender.settings import GROUPS, Settings
from lockstep.interface import Array

__all__ = [
    "COLUMNS",
    "Choices",
    "Sizes",
    "draw_choices",
    "draw_weights",
    "groups",
    "popularity",
]

COLUMNS: Columns = (("user", (0,)), ("item", (1, 2)))
"""An example is user, chosen item, item that was not chosen."""

TASTES = 8
"""Numbers that say what a user likes, and as many what an item is like."""

TASTE = 2.0
"""How much taste weighs beside popularity."""

HELD_OUT = 1000
OTHERS = 100
"""Choices that are held out, and items that each of them is ranked among."""


class Sizes(NamedTuple):
    """On what the choices of a seed depend; as in the settings."""

    users: int
    items: int
    steps: int
    batch: int


class Choices(NamedTuple):
    """Everything that is drawn from the made-up world.

    Attributes:
        batches: [steps, batch, 3] int32.
        held_out: [choices, 2 + others] int32: user, chosen item, other items.
    """

    batches: Array
    held_out: Array


def popularity(items: int) -> Array:
    """Return the share of each item in what is drawn: Zipf's law, exponent 1."""
    weight = 1 / np.arange(1, items + 1)
    shares: Array = weight / weight.sum()
    return shares


def groups(items: int) -> dict[str, slice]:
    """Return where the frequent and the rare items lie."""
    return dict(
        zip(GROUPS, (slice(0, items // 10), slice(items // 2, items)), strict=True)
    )


@lru_cache(maxsize=1)
def draw_choices(sizes: Sizes, seed: int) -> Choices:
    """Let users choose by popularity and taste; the other items by popularity alone.

    P(item | user) ~ popularity * exp(taste * user . item / sqrt(tastes)). The choices
    of the latest seed are kept, for runs come seed by seed.
    """
    stream = np.random.default_rng((seed, 0))
    bounds = _bounds(stream, sizes)
    training = _choose(stream, sizes, bounds, sizes.steps * sizes.batch, others=1)
    held_out = _choose(stream, sizes, bounds, HELD_OUT, OTHERS)
    return Choices(training.reshape(sizes.steps, sizes.batch, 3), held_out)


def _bounds(stream: np.random.Generator, sizes: Sizes) -> Array:
    """Return running sums of P: those of user u in (u, u + 1], so that one search does.

    [users * items] float64.
    """
    likes = stream.standard_normal((sizes.users, TASTES))
    kinds = stream.standard_normal((sizes.items, TASTES))
    taste = np.exp(TASTE * (likes @ kinds.T) / np.sqrt(TASTES))
    share = popularity(sizes.items) * taste
    share /= share.sum(axis=1, keepdims=True)
    sums: Array = np.cumsum(share, axis=1) + np.arange(sizes.users)[:, None]
    return sums.ravel()


def _choose(
    stream: np.random.Generator, sizes: Sizes, bounds: Array, count: int, others: int
) -> Array:
    """Draw [count, 2 + others] int32: user, chosen item, other items."""
    user = stream.integers(sizes.users, size=count)
    places = np.searchsorted(bounds, user + stream.random(count))
    item = np.clip(places - user * sizes.items, 0, sizes.items - 1)
    fame = popularity(sizes.items)
    other = stream.choice(sizes.items, (count, others), p=fame)
    return np.column_stack([user, item, other]).astype(np.int32)


def draw_weights(stream: np.random.Generator, settings: Settings) -> dict[str, Array]:
    """Draw normal rows whose norms lie around the limit: half of them above it."""
    deviation = settings.max_norm / np.sqrt(settings.width)
    return {
        name: (deviation * stream.standard_normal((rows, settings.width))).astype("f4")
        for name, rows in (("user", settings.users), ("item", settings.items))
    }
