"""A recommender of films on MovieLens 100K, by the dot product of two rows.

Each user and each film has a row. The cost of a lookup and of a step is also measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from harness.records.record import Outcome
from harness.tasks.embeddings.training import (
    OVER,
    EmbeddingSettings,
    Plan,
    Rows,
    norms,
    trainer_of,
    walk,
)
from harness.tasks.packaged import packaged_file
from harness.tasks.schema import Count, settings
from harness.timing import AGAIN, Rounds, Steps, low_quantile
from lockstep.interface import Array

LIMITS = ("none", "clip", "lookup")


@settings
class Settings(EmbeddingSettings):
    """The settings of one run, in addition to those of all tasks with embeddings.

    Attributes:
        timings: the number of timings of each kind, in runs with clipping.
    """

    limit: Literal["none", "clip", "lookup"]
    timings: Count


COLUMNS = {"user": (0,), "item": (1, 2)}
"""The columns of an example: user, rated item, another item."""

HELD_OUT = 0.2
"""The share of held-out ratings."""

TOP = 10

GAINS = 1 / np.log2(np.arange(TOP) + 2)
"""The gain of a held-out item at each of the first ranks."""


class Split(NamedTuple):
    """The split ratings of a seed, without their values.

    Attributes:
        training, held_out: [ratings, 2] int32: user, item.
        rated, wanted: whether an item is in the training or the held-out ratings of a
            user: [users, items] bool. Items in training are not ranked.
    """

    training: Array
    held_out: Array
    rated: Array
    wanted: Array


@cache
def read_pairs() -> Array:
    """Read user and item of MovieLens 100K; ids are in the order of the file's ids."""
    path = packaged_file("recbole", "recbole/dataset_example/ml-100k/ml-100k.inter")
    text = np.loadtxt(path, np.int64, skiprows=1, usecols=(0, 1))
    ids = [np.unique(column, return_inverse=True)[1] for column in text.T]
    return np.column_stack(ids).astype(np.int32)


@lru_cache(maxsize=1)
def draw_split(seed: int) -> Split:
    """Hold out a fifth of the ratings; the split of the latest seed is cached."""
    pairs = read_pairs()
    order = np.random.default_rng((seed, 0)).permutation(len(pairs))
    held_out, training = np.split(pairs[order], [round(HELD_OUT * len(order))])
    rated, wanted = tables = np.zeros((2, *pairs.max(axis=0) + 1), bool)
    for table, part in zip(tables, (training, held_out), strict=True):
        table[tuple(part.T)] = True
    return Split(training, held_out, rated, wanted)


def draw_batches(
    stream: np.random.Generator, pairs: Array, steps: int, batch: int, items: int
) -> Array:
    """Draw examples [steps, batch, 3] int32; the other item is uniformly drawn."""
    sample = pairs[stream.integers(len(pairs), size=(steps, batch))]
    other = stream.integers(items, size=(steps, batch, 1), dtype=np.int32)
    return np.concatenate([sample, other], axis=2)


def make_plan(of: Settings, seed: int) -> Plan:
    """Draw the data of one run; rows are normal, with norms around ``start``."""
    split, deviation = draw_split(seed), of.start / np.sqrt(of.width)
    streams = [np.random.default_rng((seed, stream)) for stream in (1, 2)]
    weights = {
        name: (deviation * streams[0].standard_normal((rows, of.width))).astype("f4")
        for name, rows in zip(COLUMNS, split.rated.shape, strict=True)
    }
    items = split.rated.shape[1]
    batches = draw_batches(streams[1], split.training, of.steps, of.batch, items)
    return Plan(weights, batches, COLUMNS, tuple(COLUMNS))


def measure(
    step: int, rows: Rows, of: Settings, plan: Plan, split: Split, examples: Array
) -> Mapping[str, float]:
    """Measure tables after ``step`` steps.

    ``loss``: the mean training loss over held-out ``examples``, in nats.
    ``ndcg``: of the 10 best items, the mean over the users.
    ``highest/named``: the highest norm, relative to the limit, of the item rows of the
    latest step; before the first step, of all item rows. ``highest/stored``,
    ``highest/served``: the same for all item rows, as stored and as used.
    ``above``: the share of item rows that are used with a norm above the limit.
    """
    users, items = (served(rows[name], of) for name in COLUMNS)
    lengths, stored = np.linalg.norm(items, axis=1), norms(rows["item"])
    of_latest = stored[plan.ids("item", step - 1, step)] if step else stored
    user, item, other = examples.T
    chosen, others = ((users[user] * items[each]).sum(axis=1) for each in (item, other))
    loss = np.logaddexp(0, -chosen) + np.logaddexp(0, others)
    return {
        "loss": float(loss.mean()),
        "ndcg": ndcg(users @ items.T, split.rated, split.wanted),
        "highest/named": float(of_latest.max() / of.max_norm),
        "highest/stored": float(stored.max() / of.max_norm),
        "highest/served": float(lengths.max() / of.max_norm),
        "above": float((lengths > OVER * of.max_norm).mean()),
    }


def served(table: Array, of: Settings) -> Array:
    """Return the rows as the model uses them: [rows, width] float64."""
    rows: Array = table.astype(np.float64)
    if of.limit != "lookup":
        return rows
    return rows * (of.max_norm / np.maximum(norms(table), of.max_norm))[:, None]


def ndcg(scores: Array, rated: Array, wanted: Array) -> float:
    """Return NDCG@10, the mean over users with a held-out rating.

    It is the sum over held-out items at rank k <= 10 of 1 / log2(k + 1), relative to
    the sum if all held-out items had the first ranks.
    """
    costs = np.where(rated, np.inf, -scores)
    best = np.argpartition(costs, TOP, axis=1)[:, :TOP]
    order = np.argsort(np.take_along_axis(costs, best, axis=1), axis=1, kind="stable")
    best = np.take_along_axis(best, order, axis=1)
    right = np.take_along_axis(wanted, best, axis=1)
    counts = wanted.sum(axis=1)
    some = counts > 0
    ideal = np.cumsum(GAINS)[np.minimum(counts[some], TOP) - 1]
    return float(((right @ GAINS)[some] / ideal).mean())


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; a run with clipping also measures the times of every limit.

    Summary: NDCG@10 of the most popular items, and the seconds of a step and of a
    lookup.
    """
    of, split = Settings(**config), draw_split(seed)
    plan = make_plan(of, seed)
    stream, held_out = np.random.default_rng((seed, 3)), split.held_out
    items = split.rated.shape[1]
    examples = draw_batches(stream, held_out, 1, len(held_out), items)[0]
    trainer = trainer_of("recommender", of, plan, backend, device)
    measured = partial(measure, of=of, plan=plan, split=split, examples=examples)
    outcome = walk(of, plan, trainer, measured)
    popularity = np.broadcast_to(split.rated.sum(axis=0), split.rated.shape)
    summary = {"ndcg/popularity": ndcg(popularity, split.rated, split.wanted)}
    if outcome.status == "ok" and of.limit == "clip":
        summary |= _times(of, plan, split.training, seed, backend, device)
    return replace(outcome, summary=summary)


TIMED = (*LIMITS, f"clip{AGAIN}")
"""The timed variants; the last one does the same work as clip, with separate tables."""

AT_ONCE = {"step": 2, "lookup": 10}
"""The steps or lookups of one timing: few, as long timings are often disturbed."""

SERVED = 1024
"""The number of ids of a timed lookup."""

BUILDS = 4
"""The number of new tables during the timings, because their addresses matter."""


def _times(
    of: Settings, plan: Plan, training: Array, seed: int, backend: str, device: str
) -> dict[str, float]:
    """Return the seconds of a step and of a lookup for each limit, timed in turns.

    Items are looked up as often as they are rated.
    """
    trainers = {}
    for name in TIMED:
        timed = Settings(**{**vars(of), "limit": name.removesuffix(AGAIN)})
        trainers[name] = trainer_of(
            "recommender", timed, plan, backend, device, copy=int(name.endswith(AGAIN))
        )
    stream = np.random.default_rng((seed, 4))
    shape = AT_ONCE["lookup"], SERVED
    ids = training[stream.integers(len(training), size=shape), 1]
    batches = plan.batches[: AT_ONCE["step"]]

    def build(order: int) -> Steps:
        work = {}
        for name in np.random.default_rng(order).permutation(list(trainers)):
            trainers[name].reset(plan.weights)
            work[f"step/{name}"] = partial(trainers[name].advance, batches)
            work[f"lookup/{name}"] = partial(trainers[name].serve, "item", ids)
        return work

    rounds = Rounds(build, between_builds=-(-of.timings // BUILDS), seed=seed)
    for _ in range(of.timings):
        rounds()
    return {
        f"seconds/{name}": low_quantile(seconds) / AT_ONCE[name.partition("/")[0]]
        for name, seconds in rounds.seconds.items()
    }
