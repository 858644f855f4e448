"""The settings of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from harness.records.record import Outcome
from harness.tasks.embeddings.rows import OVER, norms, served
from harness.tasks.embeddings.settings import EmbeddingSettings
from harness.tasks.embeddings.trainer import (
    Columns,
    Plan,
    Recipe,
    Rows,
    Trainer,
    make_trainer,
    recipe_of,
    trainer_of,
    walk,
)
from harness.tasks.embeddings.trainer import prepare as prepare
from harness.tasks.packaged import packaged_file
from harness.tasks.settings import require_number
from harness.timing import AGAIN, Rounds, Steps, low_quantile
from lockstep.interface import Array

GROUPS = ("frequent", "rare")
"""The most popular tenth of the items, and the least popular half."""


@dataclass(frozen=True)
class Settings(EmbeddingSettings):
    """The settings of one run, in addition to those of all tasks with embeddings.

    Attributes:
        start: the root mean square of the initial norms of rows.
        timings: the number of timings of each kind, in runs with clipping.
    """

    LIMITS: ClassVar[tuple[str, ...]] = ("none", "clip", "lookup")

    start: float
    timings: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number(self, "start")
        object.__setattr__(self, "start", float(self.start))


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


TOP = 10

GAINS = 1 / np.log2(np.arange(TOP) + 2)
"""The gain of a held-out item at each of the first ranks."""


class Asked(NamedTuple):
    """The items of the ranking query of every user.

    Attributes:
        rated: whether an item is in training: [users, items] bool. Such items are not
            ranked.
        wanted: whether an item is held out: [users, items] bool.
    """

    rated: Array
    wanted: Array


def ask(split: Split) -> Asked:
    """Return the queries of a split."""
    ratings = read_ratings()
    tables = np.zeros((2, ratings.users, ratings.items), bool)
    for table, pairs in zip(tables, (split.training, split.held_out), strict=True):
        table[tuple(pairs.T)] = True
    return Asked(*tables)


def measure(
    step: int,
    rows: Rows,
    settings: Settings,
    plan: Plan,
    split: Split,
    asked: Asked,
    examples: Array,
) -> Mapping[str, float]:
    """Measure tables after ``step`` steps.

    ``loss``: the mean training loss over held-out ``examples``, in nats.
    ``ndcg``, ``recall``: of the 10 best items, the mean over the users.
    ``norm/GROUP``: the median norm of the group's rows, as used by the model.
    ``highest/named``: the highest norm, relative to the limit, of the item rows of the
    latest step; before the first step, of all item rows. ``highest/stored``,
    ``highest/served``: the same for all item rows, as stored and as used.
    ``above``: the share of item rows that are used with a norm above the limit.
    """
    used = {name: served(table, settings) for name, table in rows.items()}
    lengths = np.linalg.norm(used["item"], axis=1)
    stored = norms(rows["item"])
    of_latest = stored[plan.named("item", step - 1, step)] if step else stored
    user, item, other = examples.T
    chosen, others = (
        (used["user"][user] * used["item"][each]).sum(axis=1) for each in (item, other)
    )
    loss = np.logaddexp(0, -chosen) + np.logaddexp(0, others)
    return {
        "loss": float(loss.mean()),
        **quality(used["user"] @ used["item"].T, asked),
        **{
            f"norm/{name}": float(np.median(lengths[part]))
            for name, part in groups(split.counts).items()
        },
        "highest/named": float(of_latest.max() / settings.max_norm),
        "highest/stored": float(stored.max() / settings.max_norm),
        "highest/served": float(lengths.max() / settings.max_norm),
        "above": float((lengths > OVER * settings.max_norm).mean()),
    }


def quality(scores: Array, asked: Asked) -> dict[str, float]:
    """Return NDCG@10 and recall@10, the mean over users with a held-out rating.

    NDCG@10 = sum over held-out items at rank k <= 10 of 1 / log2(k + 1), relative to
    the sum if all held-out items had the first ranks. recall@10: the share of held-out
    items at these ranks.
    """
    costs = np.where(asked.rated, np.inf, -scores)
    best = np.argpartition(costs, TOP, axis=1)[:, :TOP]
    order = np.argsort(np.take_along_axis(costs, best, axis=1), axis=1, kind="stable")
    best = np.take_along_axis(best, order, axis=1)
    right = np.take_along_axis(asked.wanted, best, axis=1)
    counts = asked.wanted.sum(axis=1)
    some = counts > 0
    ndcg = (right @ GAINS)[some] / _ideal(counts[some])
    recall = right.sum(axis=1)[some] / counts[some]
    return {"ndcg": float(ndcg.mean()), "recall": float(recall.mean())}


def baselines(split: Split, asked: Asked) -> dict[str, float]:
    """Return the metrics of the most popular items, and of random items.

    Of n items, each is at one of the first ranks with probability 10 / n.
    """
    popular = quality(np.broadcast_to(split.counts, asked.rated.shape), asked)
    counts = asked.wanted.sum(axis=1)
    some = counts > 0
    unrated = (~asked.rated).sum(axis=1)[some]
    ndcg = counts[some] / unrated * GAINS.sum() / _ideal(counts[some])
    return {
        "ndcg/popularity": popular["ndcg"],
        "recall/popularity": popular["recall"],
        "ndcg/chance": float(ndcg.mean()),
        "recall/chance": float((TOP / unrated).mean()),
    }


def _ideal(counts: Array) -> Array:
    """Return the sum of gains if ``counts`` held-out items have the first ranks."""
    ideal: Array = np.cumsum(GAINS)[np.minimum(counts, TOP) - 1]
    return ideal


LIMITED = ("user", "item")

TIMED = (*Settings.LIMITS, f"clip{AGAIN}")
"""The timed variants; the last two do the same work, with separate tables."""

AT_ONCE = {"step": 2, "lookup": 10}
"""The steps or lookups of one timing: few, as long timings are often disturbed."""

SERVED = 1024
"""The number of ids of a timed lookup."""

BUILDS = 4
"""The number of new tables during the timings, because their addresses matter."""


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the data of one run; its ratings do not depend on limit and optimizer."""
    split = draw_split(seed)
    streams = [np.random.default_rng((seed, stream)) for stream in (1, 2, 3)]
    weights = draw_weights(streams[0], settings)
    batches = draw_batches(streams[1], split.training, settings.steps, settings.batch)
    examples = draw_batches(streams[2], split.held_out, 1, len(split.held_out))
    plan = Plan(weights, batches, COLUMNS, lambda step, rows: {})
    measured = partial(
        measure,
        settings=settings,
        plan=plan,
        split=split,
        asked=ask(split),
        examples=examples[0],
    )
    return plan._replace(measure=measured)


def make_recipe(settings: Settings) -> Recipe:
    """Return the recipe of a run."""
    return recipe_of("recommender", settings, LIMITED, COLUMNS)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; a run with clipping also measures the times of every limit.

    Summary: NDCG@10 and recall@10 of two baselines, and the seconds of a step and of a
    lookup.
    """
    settings = Settings(**config)
    plan = make_plan(settings, seed)
    trainer = trainer_of(make_recipe(settings), backend, device)
    outcome = walk(settings, plan, trainer)
    split = draw_split(seed)
    summary = baselines(split, ask(split))
    if outcome.status == "ok" and settings.limit == "clip":
        trainers = {
            name: _timed_trainer(settings, name, backend, device) for name in TIMED
        }
        summary |= _times(settings, plan, trainers, split, seed)
    return replace(outcome, summary=summary)


def _timed_trainer(settings: Settings, name: str, backend: str, device: str) -> Trainer:
    """Return the trainer of a limit; the control has a separate trainer."""
    limit = name.removesuffix(AGAIN)
    find = trainer_of if name == limit else _other_trainer
    return find(make_recipe(replace(settings, limit=limit)), backend, device)


@cache
def _other_trainer(recipe: Recipe, backend: str, device: str) -> Trainer:
    """Return a second trainer of a recipe, which its runs also share."""
    return make_trainer(recipe, backend, device)


def _times(
    settings: Settings,
    plan: Plan,
    trainers: Mapping[str, Trainer],
    split: Split,
    seed: int,
) -> dict[str, float]:
    """Return the seconds of a step and of a lookup for each limit, timed in turns.

    Items are looked up as often as they are rated.
    """
    stream = np.random.default_rng((seed, 4))
    shape = AT_ONCE["lookup"], SERVED
    ids = split.training[stream.integers(len(split.training), size=shape), 1]
    batches = plan.batches[: AT_ONCE["step"]]

    def build(order: int) -> Steps:
        work = {}
        for name in np.random.default_rng(order).permutation(list(trainers)):
            trainers[name].reset(plan.weights)
            work[f"step/{name}"] = partial(trainers[name].advance, batches)
            work[f"lookup/{name}"] = partial(trainers[name].serve, "item", ids)
        return work

    rounds = Rounds(build, between_builds=-(-settings.timings // BUILDS), seed=seed)
    for _ in range(settings.timings):
        rounds()
    return {
        f"seconds/{name}": low_quantile(seconds) / AT_ONCE[name.partition("/")[0]]
        for name, seconds in rounds.seconds.items()
    }
