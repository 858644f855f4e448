"""Ratings of movies, with one head per genre; heads of missing genres are absent.

A shared trunk reads a user and a movie. It has 18 heads, and each head predicts the
ratings of one genre. Many movies have several genres. Most batches of 32 ratings
contain a drama, and one in five contains a documentary.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from harness.records.record import Outcome
from harness.tasks.absent_heads.training import (
    Wrapper,
    draw_weights,
    trainer_of,
    walk,
)
from harness.tasks.packaged import packaged_file
from harness.tasks.schema import Count, Even, Measured, Optimizer, settings
from lockstep.interface import Array

GENRES = tuple(
    "Action Adventure Animation Children's Comedy Crime Documentary Drama Fantasy "
    "Film-Noir Horror Musical Mystery Romance Sci-Fi Thriller War Western".split()
)
RAREST = "Documentary"
"""The genre with the fewest ratings."""


@settings
class Settings(Measured):
    """The settings of one run.

    Attributes:
        batch: ratings per step.
        hidden: the width of the trunk.
    """

    optimizer: Optimizer
    wrapper: Wrapper
    checkpoints: Even
    batch: Count
    hidden: Count


HELD_OUT = 10_000
"""The number of held-out ratings, of 100,000."""

PRIOR = 5.0
"""The number of prior ratings of the overall mean, for each user and movie."""


class Ratings(NamedTuple):
    """A set of n ratings.

    Attributes:
        features: [n, inputs] float32: user, movie, and a constant 1 (the bias).
        genres: [n, 18] float32, 1 if the movie has the genre.
        stars: [n] float32, the rating minus the mean of the training ratings.
    """

    features: Array
    genres: Array
    stars: Array


class Plan(NamedTuple):
    """All data of a run.

    Attributes:
        training, held_out: the ratings, with another split for every seed.
        batches: [steps, batch] int32, indices of training ratings.
        presence: [steps, 18] float32, 1 if a rating of the batch has the genre.
        weights: initial values by name: ``trunk`` and ``head/GENRE``.
    """

    training: Ratings
    held_out: Ratings
    batches: Array
    presence: Array
    weights: dict[str, Array]


def make_plan(of: Settings, seed: int) -> Plan:
    streams = [np.random.default_rng((seed, stream)) for stream in range(3)]
    training, held_out = _split(streams[0])
    shape = of.steps, of.batch
    batches = streams[1].integers(len(training.stars), size=shape, dtype=np.int32)
    presence = training.genres[batches].max(axis=1)
    shapes = {"trunk": (training.features.shape[1], of.hidden)}
    shapes |= {f"head/{genre}": (of.hidden + 1, 1) for genre in GENRES}
    weights = draw_weights(streams[2], shapes)
    return Plan(training, held_out, batches, presence, weights)


def _split(stream: np.random.Generator) -> list[Ratings]:
    """Split the ratings; all means are from the training part."""
    users, movies, stars, described, genres = _table()
    order = stream.permutation(len(stars))
    training, held_out = order[HELD_OUT:], order[:HELD_OUT]
    stars = stars - stars[training].mean()
    known = [described]
    for whose in (users, movies):
        counts = np.bincount(whose[training], minlength=whose.max() + 1)
        sums = np.bincount(whose[training], stars[training], whose.max() + 1)
        known.append((sums / (counts + PRIOR))[whose][:, None])
    features = np.concatenate(known, axis=1)
    deviation = features[training].std(axis=0)
    features = (features - features[training].mean(axis=0)) / np.maximum(deviation, 0.1)
    features = np.pad(features, ((0, 0), (0, 1)), constant_values=1)
    columns = features, genres, stars
    return [
        Ratings(*(column[rows].astype(np.float32) for column in columns))
        for rows in (training, held_out)
    ]


@cache
def _table() -> tuple[Array, Array, Array, Array, Array]:
    """Read MovieLens 100K, a row per rating.

    The columns are the indices of users and of movies, the stars from 1 to 5, the
    features of user and movie, and the genres. A movie without a year is of 1995, as
    most.
    """
    users, movies, ratings = (_read(name) for name in ("user", "item", "inter"))
    who = pd.Index(users["user_id"]).get_indexer(ratings["user_id"])
    what = pd.Index(movies["item_id"]).get_indexer(ratings["item_id"])
    jobs = [users["occupation"] == job for job in sorted(set(users["occupation"]))]
    ages, men = users["age"].astype(int) / 10, users["gender"] == "M"
    of_users = np.column_stack([ages, men, *jobs]).astype(float)
    years = movies["release_year"].where(movies["release_year"].str.isdigit(), "1995")
    kinds = [names.split() for names in movies["class"]]
    genres = np.array([[genre in kind for genre in GENRES] for kind in kinds], float)
    of_movies = np.column_stack([years.astype(int) / 10, genres])
    described = np.hstack([of_users[who], of_movies[what]])
    stars = ratings["rating"].to_numpy(float)
    return who, what, stars, described, genres[what]


def _read(name: str) -> pd.DataFrame:
    """Return a file as texts; its columns are named ``NAME:KIND`` there."""
    path = packaged_file("recbole", f"recbole/dataset_example/ml-100k/ml-100k.{name}")
    table = pd.read_csv(
        path, sep="\t", dtype=str, quoting=csv.QUOTE_NONE, keep_default_na=False
    )
    return table.rename(columns=lambda column: str(column).partition(":")[0])


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a held-out loss is not finite.

    Series: ``loss/GENRE``, the mean squared error over the held-out ratings of the
    genre, in stars squared; ``path/GENRE``, the sum over the steps of the 2-norm of the
    head's movement; ``informative/GENRE``.
    """
    of = Settings(**config)
    plan = make_plan(of, seed)
    return walk(of, plan, trainer_of("movie_genres", of, backend, device), GENRES)
