"""The metrics of a run in NumPy: loss, ranks and norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from harness.tasks.embeddings.rows import OVER, norms, served
from harness.tasks.embeddings.trainer import Plan, Rows
from harness.tasks.recommender.data import Split, groups, read_ratings
from harness.tasks.recommender.settings import Settings
from lockstep.interface import Array

__all__ = ["TOP", "Asked", "ask", "baselines", "measure", "quality"]

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
