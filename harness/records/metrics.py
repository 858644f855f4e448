"""Metrics: the numbers by which runs are compared, one a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from harness.records.record import Record
from harness.tasks import part

__all__ = ["Metric", "metrics_of"]


@dataclass(frozen=True)
class Metric:
    """A number of a run.

    Attributes:
        read: the number of a record; of a run that diverged it is infinite, or whatever
            else is worst.
        unit: of the number, as a reader should see it.
        better: whether the smaller or the larger number is the better one.
    """

    read: Callable[[Record], float]
    unit: str
    better: Literal["smaller", "larger"]


def metrics_of(task: str) -> Mapping[str, Metric]:
    """Return the metrics of a task by name: ``METRICS`` of its findings."""
    metrics: Mapping[str, Metric] = part(task, "findings").METRICS
    return metrics
