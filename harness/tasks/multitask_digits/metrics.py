"""The metrics by which runs are compared."""

from __future__ import annotations

import numpy as np

from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.multitask_digits.settings import TASKS

__all__ = ["METRICS"]


def _loss(record: Record) -> float:
    """Return the mean of the tasks' final held-out losses."""
    if record.status != "ok":
        return np.inf
    last = int(record.config["checkpoints"])
    return float(np.mean([record.series[f"loss/{task}"][last] for task in TASKS]))


def _head_movement(record: Record) -> float:
    """Return the heads' path per informative step in the second half of training.

    NaN if no task was present there.
    """
    if record.status != "ok":
        return np.inf
    last = int(record.config["checkpoints"])
    path, steps = (
        sum(
            record.series[f"{kind}/{task}"][last]
            - record.series[f"{kind}/{task}"][last // 2]
            for task in TASKS
        )
        for kind in ("path", "informative")
    )
    return path / steps if steps else np.nan


def _relative_movement(record: Record) -> float:
    """Return the heads' movement in units of the arm's learning rate."""
    rate = float(record.config["optimizer"]["learning_rate"])
    return _head_movement(record) / rate


METRICS = {
    "loss": Metric(_loss, "nats, mean of the three tasks", "smaller"),
    "head movement": Metric(_head_movement, "distance per informative step", "smaller"),
    "relative movement": Metric(
        _relative_movement, "learning rates per informative step", "smaller"
    ),
}
"""The metrics by which runs are compared."""
