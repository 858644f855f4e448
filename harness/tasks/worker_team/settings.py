"""The settings of a team of workers, with their checks."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.settings import require, require_counts, require_number

__all__ = ["FLOAT", "MOST", "PERIODS", "TeamSettings"]

PERIODS = (1, 10, 40)
"""Local steps between two exchanges of a worker."""

MOST = 64
"""The most workers on one machine; each is a process with its framework."""

FLOAT = 4
"""The bytes of a weight."""


@dataclass(frozen=True)
class TeamSettings:
    """The settings of the runs of every task with workers.

    Attributes:
        workers: the number of workers that train at the same time.
        step_ms: the milliseconds that a step waits.
        model_mb: megabytes of weights, in float32.
        window: the seconds for which steps are counted.
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
        """The number of weights of the model."""
        return max(1, round(self.model_mb * 1e6 / FLOAT))

    @property
    def model_bytes(self) -> int:
        """The bytes of the model."""
        return FLOAT * self.weights
