"""The settings of one run, checked where they are declared."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.settings import require, require_counts, require_number

__all__ = ["PERIODS", "PUSHERS", "Settings"]

PERIODS = (1, 10, 40)
"""Local steps between two exchanges of a worker."""

PUSHERS = 2
"""Workers that push without a pause where the center alone is measured."""

MOST = 64
"""Workers of one machine, each of which is a process with its framework."""

FLOAT = 4
"""Bytes of a weight."""


@dataclass(frozen=True)
class Settings:
    """What one run does.

    Attributes:
        workers: how many train at once.
        step_ms: how long a step waits, in milliseconds.
        model_mb: megabytes of weights, in float32.
        large_mb: megabytes that are pushed where a large model is measured.
        window: seconds for which each number of steps is counted.
    """

    workers: int
    step_ms: float
    model_mb: float
    large_mb: float
    window: float

    def __post_init__(self) -> None:
        require_counts(self, "workers")
        require_number(self, "step_ms", "model_mb", "large_mb", "window")
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

    @property
    def large_weights(self) -> int:
        """Weights of the large model."""
        return max(1, round(self.large_mb * 1e6 / FLOAT))
