"""One run: training on the links of one seed on a backend."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from harness.records.record import Outcome
from harness.tasks.embeddings.trainer import Plan, prepare, trainer_of, walk
from harness.tasks.link_prediction import data, metrics
from harness.tasks.link_prediction.settings import Settings

__all__ = ["LIMITED", "make_plan", "prepare", "train"]

LIMITED = ("entity",)


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the plan of one run; it does not depend on limit and optimizer."""
    streams = [np.random.default_rng((seed, stream)) for stream in range(4)]
    links = data.split(streams[0])
    batches = data.draw_batches(
        streams[1], links.training, settings.steps, settings.batch
    )
    weights = data.draw_weights(streams[2], settings)
    examples = data.draw_batches(streams[3], links.training, 1, len(links.training))[0]
    known = metrics.known_tails(links)
    measure = partial(
        metrics.measure, settings=settings, links=links, examples=examples, known=known
    )
    return Plan(weights, batches, data.COLUMNS, lambda _, rows: measure(rows))


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run."""
    settings = Settings(**config)
    trainer = trainer_of(
        "link_prediction", settings, LIMITED, data.COLUMNS, backend, device
    )
    return walk(settings, make_plan(settings, seed), trainer)
