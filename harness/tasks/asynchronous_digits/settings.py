"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.settings import require, require_counts, require_number
from lockstep.messages.errors import unknown_name

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
"""How often the center is measured, at most: at equal shares of the minibatches."""


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        method: one of ``METHODS``.
        workers: n, how many there are.
        period: local steps between two exchanges of a worker; a synchronous run
            exchanges after every step.
        learning_rate: of Adam, in every worker and, where the method has a rule there,
            at the center.
        minibatches: local steps of all workers together.
        batch: images a minibatch.
        hidden: width of the hidden layer.
        latency: duration of a message, in local steps.
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
