"""The settings of a team of workers, checked where they are declared."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.settings import require, require_counts, require_number

__all__ = ["FLOAT", "MOST", "PERIODS", "TeamSettings"]

PERIODS = (1, 10, 40)
"""Local steps between two exchanges of a worker."""

MOST = 64
"""Workers of one machine, each of which is a process with its framework."""

FLOAT = 4
"""Bytes of a weight."""


@dataclass(frozen=True)
class TeamSettings:
    """What the runs of every task with workers need.

    Attributes:
        workers: how many train at once.
        step_ms: how long a step waits, in milliseconds.
        model_mb: megabytes of weights, in float32.
        window: seconds for which each number of steps is counted.
    """

    workers: int
    step_ms: float
    model_mb: float
    window: float

    def __post_init__(self) -> None:
        require_counts(self, "workers")
        require_number(self, "step_ms", "model_mb", "window")
        require(self.workers <= MOST, "workers", f"at most {MOST}", self.workers)
        rounds = 1000 * self.window / (max(PERIODS) * self.step_ms)
        expected = f"time for a round of {max(PERIODS)} steps"
        require(rounds >= 1, "window", expected, f"{self.window} s")

    @property
    def weights(self) -> int:
        """Weights of the model."""
        return max(1, round(self.model_mb * 1e6 / FLOAT))

    @property
    def model_bytes(self) -> int:
        """Bytes of the model."""
        return FLOAT * self.weights
