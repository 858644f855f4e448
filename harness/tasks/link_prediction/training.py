"""One run: train on a graph on a backend, with the batches and first rows of a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from harness.records.record import Outcome
from harness.tasks.embeddings.trainer import (
    Plan,
    Recipe,
    prepare,
    recipe_of,
    trainer_of,
    walk,
)
from harness.tasks.link_prediction import data, metrics
from harness.tasks.link_prediction.settings import Settings

__all__ = ["LIMITED", "make_plan", "make_recipe", "prepare", "train"]

LIMITED = ("entity",)


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the data of one run, which does not depend on limit and optimizer."""
    graph = data.read_graph(settings.name)
    streams = [np.random.default_rng((seed, stream)) for stream in range(3)]
    batches = data.draw_batches(streams[0], graph, settings.steps, settings.batch)
    weights = data.draw_weights(streams[1], graph, settings)
    examples = data.draw_batches(streams[2], graph, 1, len(graph.training))[0]
    measure = partial(metrics.measure, settings=settings, examples=examples)
    return Plan(weights, batches, data.COLUMNS, lambda _, rows: measure(rows))


def make_recipe(settings: Settings) -> Recipe:
    """Return the recipe of a run; its loss has a penalty if that is the limit."""
    penalty = settings.penalty if settings.limit == "penalty" else 0.0
    numbers = {"margin": settings.margin, "penalty": penalty}
    return recipe_of("link_prediction", settings, LIMITED, data.COLUMNS, **numbers)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run. Summary: the metrics of random ranks."""
    settings = Settings(**config)
    plan = make_plan(settings, seed)
    trainer = trainer_of(make_recipe(settings), backend, device)
    outcome = walk(settings, plan, trainer)
    return replace(outcome, summary=dict(metrics.chance(settings.name)))
