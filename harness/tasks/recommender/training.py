"""One run: training on the choices of one seed on a backend, then timed lookups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from harness.records.record import Outcome
from harness.tasks.embeddings.trainer import (
    Plan,
    Trainer,
    prepare,
    recipe_of,
    trainer_of,
    walk,
)
from harness.tasks.recommender import data, metrics
from harness.tasks.recommender.settings import Settings
from harness.timing import Rounds, low_quantile

__all__ = ["LIMITED", "make_plan", "prepare", "train"]

LIMITED = ("user", "item")

STEPS, LOOKUPS = 1, 10
"""How many one timing takes together: few, for a long one is rarely undisturbed."""

SERVED = 1024
"""Ids of a lookup that is timed."""


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the plan of one run; its choices do not depend on limit and optimizer."""
    sizes = data.Sizes(settings.users, settings.items, settings.steps, settings.batch)
    choices = data.draw_choices(sizes, seed)
    weights = data.draw_weights(np.random.default_rng((seed, 1)), settings)
    plan = Plan(weights, choices.batches, data.COLUMNS, lambda step, rows: {})
    measure = partial(
        metrics.measure, settings=settings, plan=plan, held_out=choices.held_out
    )
    return plan._replace(measure=measure)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; that with rows clipped also takes the times, of every limit."""
    settings = Settings(**config)
    plan = make_plan(settings, seed)
    outcome = walk(settings, plan, _trainer(settings, backend, device))
    if outcome.status != "ok" or settings.limit != "clip":
        return outcome
    trainers = {}
    for limit in Settings.LIMITS:
        trainers[limit] = _trainer(replace(settings, limit=limit), backend, device)
        trainers[limit].reset(plan.weights)
    return replace(outcome, summary=_times(settings, plan, trainers, seed))


def _trainer(settings: Settings, backend: str, device: str) -> Trainer:
    recipe = recipe_of("recommender", settings, LIMITED, data.COLUMNS)
    return trainer_of(recipe, backend, device)


def _times(
    settings: Settings, plan: Plan, trainers: Mapping[str, Trainer], seed: int
) -> dict[str, float]:
    """Return the seconds of a step and of a lookup for each limit, taken in turns."""
    shares = data.popularity(settings.items)
    stream = np.random.default_rng((seed, 2))
    ids = stream.choice(settings.items, (LOOKUPS, SERVED), p=shares).astype(np.int32)
    batches = plan.batches[:STEPS]
    work: dict[str, Callable[[], None]] = {}
    for limit, trainer in trainers.items():
        work[f"step/{limit}"] = partial(trainer.advance, batches)
        work[f"lookup/{limit}"] = partial(trainer.serve, "item", ids)
    rounds = Rounds(lambda _: work, between_builds=settings.timings, seed=seed)
    for _ in range(settings.timings):
        rounds()
    at_once = {"step": STEPS, "lookup": LOOKUPS}
    return {
        f"seconds/{name}": low_quantile(seconds) / at_once[name.partition("/")[0]]
        for name, seconds in rounds.seconds.items()
    }
