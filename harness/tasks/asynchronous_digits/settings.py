"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.settings import require, require_counts, require_number
from lockstep.errors import unknown_name

__all__ = ["METHODS", "Settings"]

METHODS = (
    "agn-delta",
    "agn-gradient",
    "downpour",
    "dynsgd",
    "easgd",
    "synchronous",
)

SNAPSHOTS = 50
"""The most measurements of the center, at equal distances in minibatches."""


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        method: one of ``METHODS``.
        workers: n, the number of workers.
        period: local steps between two exchanges of a worker; a synchronous run
            exchanges after every step.
        learning_rate: Adam's learning rate, in every worker and at the center if the
            method has a rule there.
        minibatches: the total of local steps of all workers.
        batch: images per minibatch.
        hidden: the width of the hidden layer.
        latency: the duration of a message, in local steps.
    """

    method: str
    workers: int
    period: int
    learning_rate: float
    minibatches: int
    batch: int
    hidden: int
    latency: float

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise unknown_name("method", self.method, METHODS)
        require_counts(self, "workers", "period", "minibatches", "batch", "hidden")
        require_number(self, "learning_rate", "latency")
        exchanges = self.minibatches // (self.workers * self.period)
        expected = "at least one exchange of every worker"
        got = f"{self.minibatches} minibatches for {self.workers} workers"
        require(exchanges > 0, "period", expected, f"{self.period} with {got}")

    @property
    def interval(self) -> int:
        """Local steps between two measurements of the center."""
        return max(1, self.minibatches // SNAPSHOTS)
