"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from harness.records.metrics import Metric
from harness.records.record import Outcome, Record
from harness.tasks import backends
from harness.tasks.absent_heads.arms import NONE, WRAPPED, WRAPPERS, loss_weights
from harness.tasks.packaged import packaged_file
from harness.tasks.settings import bound, require, require_counts, spread
from lockstep.errors import unknown_name
from lockstep.interface import Array
from lockstep.optimizers import OPTIMIZERS

GENRES = (
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
)


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        optimizer: name of an optimizer of TensorFlow 1, and its arguments.
        wrapper: ``default`` or ``strict``, the multitask wrapper in this mode;
            ``none``, zeros are fed; or ``mean``, zeros are fed and the loss is the mean
            over present tasks.
        steps: optimizer steps of training.
        checkpoints: the number of measurements during training, at equal distances;
            even, so that one is at half time.
        batch: ratings per step.
        hidden: the width of the trunk.
    """

    optimizer: Mapping[str, Any]
    wrapper: str
    steps: int
    checkpoints: int
    batch: int
    hidden: int

    def __post_init__(self) -> None:
        if self.wrapper not in WRAPPERS:
            raise unknown_name("wrapper", self.wrapper, WRAPPERS)
        require_counts(self, "steps", "checkpoints", "batch", "hidden")
        even = self.checkpoints % 2 == 0 and self.steps % self.checkpoints == 0
        got = f"{self.checkpoints} for {self.steps} steps"
        require(even, "checkpoints", "an even number that divides steps", got)
        object.__setattr__(self, "optimizer", bound(self.optimizer))

    @property
    def measured_at(self) -> list[int]:
        """The steps after which everything is measured, including 0."""
        return spread(self.checkpoints, self.steps)


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


RAREST = "Documentary"
"""The genre with the fewest ratings."""


def error(record: Record, genre: str) -> float:
    """Return the root mean squared error of a head at the end, in stars."""
    if record.status != "ok":
        return np.inf
    return float(np.sqrt(record.series[f"loss/{genre}"][-1]))


def movement(record: Record, genre: str) -> float:
    """Return a head's path per informative step in the second half of training.

    In units of the learning rate, because arms differ in it. NaN without such a step.
    """
    if record.status != "ok":
        return np.inf
    half = int(record.config["checkpoints"]) // 2
    path, steps = (
        record.series[f"{kind}/{genre}"][-1] - record.series[f"{kind}/{genre}"][half]
        for kind in ("path", "informative")
    )
    rate = float(record.config["optimizer"]["learning_rate"])
    return path / steps / rate if steps else np.nan


def _mean_error(record: Record) -> float:
    return float(np.mean([error(record, genre) for genre in GENRES]))


def _rarest_error(record: Record) -> float:
    return error(record, RAREST)


def _rarest_movement(record: Record) -> float:
    return movement(record, RAREST)


METRICS = {
    "error": Metric(_mean_error, "stars, mean of the genres", "smaller"),
    "documentary error": Metric(_rarest_error, "stars", "smaller"),
    "documentary movement": Metric(
        _rarest_movement, "learning rates per informative step", "smaller"
    ),
}
"""The metrics by which runs are compared."""


class Recipe(NamedTuple):
    """The recipe from which a backend builds its optimizer.

    Attributes:
        optimizer, arguments: the class of the optimizer, and its arguments by name.
        wrapper: ``none``, or the multitask wrapper, ``default`` or ``strict``.
    """

    optimizer: str
    arguments: Mapping[str, Any]
    wrapper: str


class Trainer(Protocol):
    """The model and optimizer on one backend."""

    def reset(self, plan: Plan) -> None:
        """Use the ratings and the initial weights of a plan; reset all state."""
        ...

    def advance(self, batches: Array, weights: Array) -> None:
        """Train on len(batches) batches; ``weights`` scale the genres' losses."""
        ...

    def measure(self) -> Mapping[str, float]:
        """Return name -> measured value after the steps so far.

        ``loss/GENRE``: mean squared error over the held-out ratings of the genre, in
        stars squared. ``path/GENRE``: sum over the steps of the 2-norm of the head's
        movement.
        """
        ...


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a held-out loss is not finite.

    Summary: ``baseline``, the root mean squared error of the mean rating, averaged over
    the genres, in stars.
    """
    settings = Settings(**config)
    plan = make_plan(settings, seed)
    weights = loss_weights(plan.presence, settings.wrapper)
    trainer = _trainer(settings, backend, device)
    trainer.reset(plan)
    rows = [_row(plan, 0, trainer)]
    for start, stop in pairwise(settings.measured_at):
        trainer.advance(plan.batches[start:stop], weights[start:stop])
        rows.append(_row(plan, stop, trainer))
        if not all(np.isfinite(rows[-1][f"loss/{genre}"]) for genre in GENRES):
            reason = f"a held-out loss was not finite after step {stop}"
            return Outcome("diverged", reason, _columns(rows))
    return Outcome("ok", "", _columns(rows), {"baseline": _baseline(plan)})


def _trainer(settings: Settings, backend: str, device: str) -> Trainer:
    module = backends.model(__package__, backend)
    arguments = dict(settings.optimizer)
    spec = OPTIMIZERS[arguments.pop("name")]
    wrapper = settings.wrapper if settings.wrapper in WRAPPED else NONE
    recipe = Recipe(spec.class_name, arguments, wrapper)
    trainer: Trainer = module.GenresTrainer(recipe, device)
    return trainer


def _row(plan: Plan, step: int, trainer: Trainer) -> dict[str, float]:
    """Measure after ``step`` steps; ``informative/GENRE`` counts the genre's steps."""
    presences = plan.presence[:step].sum(axis=0, dtype=np.int64)
    counts = {
        f"informative/{g}": int(n) for g, n in zip(GENRES, presences, strict=True)
    }
    return {"step": step, **counts, **trainer.measure()}


def _baseline(plan: Plan) -> float:
    """Return the error of the mean rating in stars, averaged over the genres."""
    squares = plan.held_out.stars.astype(np.float64) ** 2
    genres = plan.held_out.genres
    return float(np.mean(np.sqrt(squares @ genres / genres.sum(axis=0))))


def _columns(rows: list[dict[str, float]]) -> dict[str, list[float]]:
    return {name: [row[name] for row in rows] for name in rows[0]}
