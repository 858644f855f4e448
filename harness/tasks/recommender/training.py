"""One run: train on the ratings of one seed on a backend, then time lookups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from harness.records.record import Outcome
from harness.tasks.embeddings.trainer import (
    Plan,
    Recipe,
    Trainer,
    make_trainer,
    prepare,
    recipe_of,
    trainer_of,
    walk,
)
from harness.tasks.recommender import data, metrics
from harness.tasks.recommender.settings import Settings
from harness.timing import AGAIN, Rounds, Steps, low_quantile

__all__ = ["LIMITED", "TIMED", "make_plan", "make_recipe", "prepare", "train"]

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
    split = data.draw_split(seed)
    streams = [np.random.default_rng((seed, stream)) for stream in (1, 2, 3)]
    weights = data.draw_weights(streams[0], settings)
    batches = data.draw_batches(
        streams[1], split.training, settings.steps, settings.batch
    )
    examples = data.draw_batches(streams[2], split.held_out, 1, len(split.held_out))
    plan = Plan(weights, batches, data.COLUMNS, lambda step, rows: {})
    measure = partial(
        metrics.measure,
        settings=settings,
        plan=plan,
        split=split,
        asked=metrics.ask(split),
        examples=examples[0],
    )
    return plan._replace(measure=measure)


def make_recipe(settings: Settings) -> Recipe:
    """Return the recipe of a run."""
    return recipe_of("recommender", settings, LIMITED, data.COLUMNS)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; a run with clipping also measures the times of every limit.

    Summary: NDCG@10 and recall@10 of two baselines, and the seconds of a step and of a
    lookup.
    """
    settings = Settings(**config)
    plan = make_plan(settings, seed)
    trainer = trainer_of(make_recipe(settings), backend, device)
    outcome = walk(settings, plan, trainer)
    split = data.draw_split(seed)
    summary = metrics.baselines(split, metrics.ask(split))
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
    split: data.Split,
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
