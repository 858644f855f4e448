"""One run: apply the same updates repeatedly, and measure how many are lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.lost_updates import laws
from harness.tasks.lost_updates.data import make_plan
from harness.tasks.lost_updates.settings import Settings

__all__ = ["prepare", "train"]


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run.

    Series: ``step``, ``lost`` (the share of updates so far that did not change a bit of
    the trained weight or master) and ``moved`` (the movement relative to the sum of the
    updates, the median over the weights). Summary: the last value of each series,
    ``first`` (lost in the first step) and ``numpy`` (the same for NumPy's float16).
    """
    settings = Settings(**config)
    plan = make_plan(settings, seed)
    module = backends.model(__package__, backend)
    trainer = module.Trainer(settings, plan, device)
    lost, rows, before = 0.0, [], trainer.trained()
    start, updates = plan.weights.astype(float), plan.updates.astype(float)
    for step in range(1, settings.steps + 1):
        trainer.step()
        now = trainer.trained()
        lost += float(np.mean(now == before))
        before = now
        if step in settings.measured_at:
            way = (start - trainer.weights().astype(float)) / (step * updates)
            moved = float(np.median(way))
            rows.append({"step": float(step), "lost": lost / step, "moved": moved})
    series = {name: [row[name] for row in rows] for name in rows[0]}
    own = {"first": rows[0]["lost"], "numpy": laws.lost_in_float16(plan)}
    return Outcome("ok", "", series, {**rows[-1], **own})
