"""One run: train on a backend and measure at sparse checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.absent_heads.arms import NONE, WRAPPED, loss_weights
from harness.tasks.multitask_digits.data import Plan, make_plan
from harness.tasks.multitask_digits.settings import TASKS, Settings
from harness.tasks.multitask_digits.trainer import Recipe, Trainer
from lockstep.optimizers import OPTIMIZERS

__all__ = ["prepare", "train"]


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a held-out loss is not finite."""
    settings = Settings(**config)
    plan = make_plan(settings, seed)
    weights = loss_weights(plan.presence, settings.wrapper)
    optimizer = tuple(settings.optimizer.items())
    wrapper = settings.wrapper if settings.wrapper in WRAPPED else NONE
    trainer = _trainer(backend, device, optimizer, wrapper, settings.hidden)
    trainer.reset(plan)
    rows = [_row(plan, 0, trainer)]
    for start, stop in pairwise(settings.measured_at):
        trainer.advance(plan.batches[start:stop], weights[start:stop])
        rows.append(_row(plan, stop, trainer))
        if not all(np.isfinite(rows[-1][f"loss/{task}"]) for task in TASKS):
            reason = f"a held-out loss was not finite after step {stop}"
            return Outcome("diverged", reason, _columns(rows))
    trained = rows[settings.checkpoints]
    summary = {f"loss/{task}": trained[f"loss/{task}"] for task in TASKS}
    return Outcome("ok", "", _columns(rows), summary)


@cache
def _trainer(
    backend: str,
    device: str,
    optimizer: tuple[tuple[str, Any], ...],
    wrapper: str,
    hidden: int,
) -> Trainer:
    """Return the trainer of these arguments, shared by runs so that it compiles once.

    ``hidden`` is part of the key because a compiled step has fixed shapes.
    """
    module = backends.model(__package__, backend)
    arguments = dict(optimizer)
    spec = OPTIMIZERS[arguments.pop("name")]
    slots = [slot.name for slot in spec.active_slots(arguments)]
    recipe = Recipe(spec.class_name, arguments, wrapper, slots)
    trainer: Trainer = module.DigitsTrainer(recipe, device)
    return trainer


def _row(plan: Plan, step: int, trainer: Trainer) -> dict[str, float]:
    """Measure after ``step`` steps; ``informative/TASK`` counts a task's steps."""
    presences = plan.presence[:step].sum(axis=0, dtype=np.int64)
    counts = {f"informative/{t}": int(n) for t, n in zip(TASKS, presences, strict=True)}
    return {"step": step, **counts, **trainer.measure()}


def _columns(rows: list[dict[str, float]]) -> dict[str, list[float]]:
    return {name: [row[name] for row in rows] for name in rows[0]}
