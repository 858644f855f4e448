"""How a run is measured: loss, ranks and norms, in NumPy."""

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
"""What a held-out item counts in each of the first places."""


class Asked(NamedTuple):
    """What every user is asked for.

    Attributes:
        rated: in training: [users, items] bool. These items are not ranked.
        wanted: held out: [users, items] bool.
    """

    rated: Array
    wanted: Array


def ask(split: Split) -> Asked:
    """Return what a split asks for."""
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

    ``loss``: mean over held-out ``examples``, in nats, of the loss that is trained.
    ``ndcg``, ``recall``: of the 10 best items, the mean over the users.
    ``norm/GROUP``: median norm of such items' rows, as they are used.
    ``highest/named``: highest norm of an item's row that the latest step named, over
    the limit; before the first step, of all rows. ``highest/stored``,
    ``highest/served``: of all items' rows in the table, and as they are used.
    ``above``: share of the items' rows that are used with a norm above the limit.
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

    NDCG@10 = sum over held-out items in place k <= 10 of 1 / log2(k + 1), over what it
    would be if they all came first. recall@10: which share of them is in these places.
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
    """Return what the most popular items lead to, and items drawn at random.

    Of n items, each is in one of the first places with probability 10 / n.
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
    """Return the sum of the gains where so many held-out items come first."""
    ideal: Array = np.cumsum(GAINS)[np.minimum(counts, TOP) - 1]
    return ideal
