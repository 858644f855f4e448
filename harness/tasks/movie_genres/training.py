"""One run: train on a backend and measure at sparse checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.absent_heads.arms import NONE, WRAPPED, loss_weights
from harness.tasks.movie_genres.data import Plan, make_plan
from harness.tasks.movie_genres.settings import GENRES, Settings
from harness.tasks.movie_genres.trainer import Recipe, Trainer
from lockstep.optimizers import OPTIMIZERS

__all__ = ["prepare", "train"]


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a held-out loss is not finite.

    Summary: ``baseline``, the root mean squared error of the mean rating, averaged over
    the genres, in stars.
    """
    settings = Settings(**config)
    plan = make_plan(settings, seed)
    weights = loss_weights(plan.presence, settings.wrapper)
    trainer = _trainer(settings, backend, device)
    trainer.reset(plan)
    rows = [_row(plan, 0, trainer)]
    for start, stop in pairwise(settings.measured_at):
        trainer.advance(plan.batches[start:stop], weights[start:stop])
        rows.append(_row(plan, stop, trainer))
        if not all(np.isfinite(rows[-1][f"loss/{genre}"]) for genre in GENRES):
            reason = f"a held-out loss was not finite after step {stop}"
            return Outcome("diverged", reason, _columns(rows))
    return Outcome("ok", "", _columns(rows), {"baseline": _baseline(plan)})


def _trainer(settings: Settings, backend: str, device: str) -> Trainer:
    module = backends.model(__package__, backend)
    arguments = dict(settings.optimizer)
    spec = OPTIMIZERS[arguments.pop("name")]
    wrapper = settings.wrapper if settings.wrapper in WRAPPED else NONE
    recipe = Recipe(spec.class_name, arguments, wrapper)
    trainer: Trainer = module.GenresTrainer(recipe, device)
    return trainer


def _row(plan: Plan, step: int, trainer: Trainer) -> dict[str, float]:
    """Measure after ``step`` steps; ``informative/GENRE`` counts the genre's steps."""
    presences = plan.presence[:step].sum(axis=0, dtype=np.int64)
    counts = {
        f"informative/{g}": int(n) for g, n in zip(GENRES, presences, strict=True)
    }
    return {"step": step, **counts, **trainer.measure()}


def _baseline(plan: Plan) -> float:
    """Return the error of the mean rating in stars, averaged over the genres."""
    squares = plan.held_out.stars.astype(np.float64) ** 2
    genres = plan.held_out.genres
    return float(np.mean(np.sqrt(squares @ genres / genres.sum(axis=0))))


def _columns(rows: list[dict[str, float]]) -> dict[str, list[float]]:
    return {name: [row[name] for row in rows] for name in rows[0]}
