"""The metrics by which runs are compared."""

from __future__ import annotations

import numpy as np

from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.movie_genres.settings import GENRES

__all__ = ["METRICS", "RAREST", "error", "movement"]

RAREST = "Documentary"
"""The genre with the fewest ratings."""


def error(record: Record, genre: str) -> float:
    """Return the root mean squared error of a head at the end, in stars."""
    if record.status != "ok":
        return np.inf
    return float(np.sqrt(record.series[f"loss/{genre}"][-1]))


def movement(record: Record, genre: str) -> float:
    """Return a head's path per informative step in the second half of training.

    In units of the learning rate, because arms differ in it. NaN without such a step.
    """
    if record.status != "ok":
        return np.inf
    half = int(record.config["checkpoints"]) // 2
    path, steps = (
        record.series[f"{kind}/{genre}"][-1] - record.series[f"{kind}/{genre}"][half]
        for kind in ("path", "informative")
    )
    rate = float(record.config["optimizer"]["learning_rate"])
    return path / steps / rate if steps else np.nan


def _mean_error(record: Record) -> float:
    return float(np.mean([error(record, genre) for genre in GENRES]))


def _rarest_error(record: Record) -> float:
    return error(record, RAREST)


def _rarest_movement(record: Record) -> float:
    return movement(record, RAREST)


METRICS = {
    "error": Metric(_mean_error, "stars, mean of the genres", "smaller"),
    "documentary error": Metric(_rarest_error, "stars", "smaller"),
    "documentary movement": Metric(
        _rarest_movement, "learning rates per informative step", "smaller"
    ),
}
"""The metrics by which runs are compared."""
