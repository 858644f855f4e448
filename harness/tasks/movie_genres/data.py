"""The data of a run on any backend: ratings, batches, presence of genres, weights.

Everything is in NumPy and depends on one seed. The ratings are MovieLens 100K.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from harness.tasks.movie_genres.settings import GENRES, Settings
from harness.tasks.packaged import packaged_file
from lockstep.interface import Array

__all__ = ["Plan", "Ratings", "make_plan"]

PACKAGE, FOLDER = "recbole", "recbole/dataset_example/ml-100k"

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


class Table(NamedTuple):
    """MovieLens 100K, one row per rating.

    Attributes:
        users, movies: [n] indices.
        stars: [n] 1 to 5.
        described: [n, ...] the features of the user and of the movie.
        genres: [n, 18].
    """

    users: Array
    movies: Array
    stars: Array
    described: Array
    genres: Array


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the data of one run."""
    streams = [np.random.default_rng((seed, stream)) for stream in range(3)]
    training, held_out = _split(streams[0])
    shape = settings.steps, settings.batch
    batches = streams[1].integers(len(training.stars), size=shape, dtype=np.int32)
    presence = training.genres[batches].max(axis=1)
    inputs = training.features.shape[1]
    weights = _weights(streams[2], inputs, settings.hidden)
    return Plan(training, held_out, batches, presence, weights)


def _split(stream: np.random.Generator) -> tuple[Ratings, Ratings]:
    """Split the ratings; all means are from the training part."""
    table = _table()
    order = stream.permutation(len(table.stars))
    training, held_out = order[HELD_OUT:], order[:HELD_OUT]
    mean = table.stars[training].mean()
    stars = table.stars - mean
    known = [table.described]
    for whose in (table.users, table.movies):
        counts = np.bincount(whose[training], minlength=whose.max() + 1)
        sums = np.bincount(whose[training], stars[training], whose.max() + 1)
        known.append((sums / (counts + PRIOR))[whose][:, None])
    features = np.concatenate(known, axis=1)
    deviation = features[training].std(axis=0)
    features = (features - features[training].mean(axis=0)) / np.maximum(deviation, 0.1)
    features = np.pad(features, ((0, 0), (0, 1)), constant_values=1)
    columns = features, table.genres, stars
    parts = [
        Ratings(*(column[rows].astype(np.float32) for column in columns))
        for rows in (training, held_out)
    ]
    return parts[0], parts[1]


@cache
def _table() -> Table:
    """Read users, movies and ratings."""
    users, movies = _read("user"), _read("item")
    jobs = sorted({user["occupation"] for user in users})
    of_users = [
        [int(user["age"]) / 10, user["gender"] == "M"]
        + [user["occupation"] == job for job in jobs]
        for user in users
    ]
    years = [_year(movie["release_year"]) / 10 for movie in movies]
    genres = [[genre in movie["class"].split() for genre in GENRES] for movie in movies]
    user_rows, movie_rows = (
        {row[f"{name}_id"]: k for k, row in enumerate(rows)}
        for name, rows in (("user", users), ("item", movies))
    )
    ratings = _read("inter")
    who = np.array([user_rows[row["user_id"]] for row in ratings])
    what = np.array([movie_rows[row["item_id"]] for row in ratings])
    stars = np.array([float(row["rating"]) for row in ratings])
    of_genres = np.array(genres, float)[what]
    described = [np.array(of_users, float)[who], np.array(years)[what][:, None]]
    return Table(who, what, stars, np.hstack([*described, of_genres]), of_genres)


def _read(name: str) -> list[dict[str, str]]:
    """Return the rows of a file as column -> value; its header has ``name:kind``."""
    path = packaged_file(PACKAGE, f"{FOLDER}/ml-100k.{name}")
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        header = [column.partition(":")[0] for column in next(lines)]
        return [_named(header, line) for line in lines]


def _year(text: str) -> int:
    """Return a year; 1995, that of most movies, if it is missing."""
    return int(text) if text.isdigit() else 1995


def _named(header: Sequence[str], line: Sequence[str]) -> dict[str, str]:
    return dict(zip(header, line, strict=True))


def _weights(stream: np.random.Generator, inputs: int, hidden: int) -> dict[str, Array]:
    """Draw weights of variance 1/inputs; each layer's last input is the bias."""
    shapes = {"trunk": (inputs, hidden)}
    shapes |= {f"head/{genre}": (hidden + 1, 1) for genre in GENRES}
    return {
        name: (stream.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        for name, shape in shapes.items()
    }
