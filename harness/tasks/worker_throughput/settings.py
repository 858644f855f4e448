"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.settings import require_number
from harness.tasks.worker_team.settings import FLOAT, TeamSettings

__all__ = ["PUSHERS", "Settings"]

PUSHERS = 2
"""The number of workers that push without pauses to measure the center alone."""


@dataclass(frozen=True)
class Settings(TeamSettings):
    """The settings of one run.

    Attributes:
        large_mb: the megabytes of a push of the large model.
    """

    large_mb: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number(self, "large_mb")

    @property
    def large_weights(self) -> int:
        """The number of weights of the large model."""
        return max(1, round(self.large_mb * 1e6 / FLOAT))
