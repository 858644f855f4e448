"""Metrics: the numbers by which runs are compared, one per record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from harness.records.record import Record
from harness.tasks import part


@dataclass(frozen=True)
class Metric:
    """A number by which runs are compared.

    Attributes:
        read: returns the number of a record. For a diverged run it is infinite, or the
            worst possible value.
        unit: unit of the number, as shown to readers.
        better: whether smaller or larger numbers are better.
    """

    read: Callable[[Record], float]
    unit: str
    better: Literal["smaller", "larger"]


def metrics_of(task: str) -> Mapping[str, Metric]:
    """Return the metrics of a task by name: ``METRICS`` of its report."""
    metrics: Mapping[str, Metric] = part(task, "report").METRICS
    return metrics
