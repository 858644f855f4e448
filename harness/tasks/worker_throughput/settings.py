"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.settings import require_number
from harness.tasks.worker_team.settings import FLOAT, TeamSettings

__all__ = ["PUSHERS", "Settings"]

PUSHERS = 2
"""Workers that push without a pause where the center alone is measured."""


@dataclass(frozen=True)
class Settings(TeamSettings):
    """The settings of one run.

    Attributes:
        large_mb: megabytes that are pushed where a large model is measured.
    """

    large_mb: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number(self, "large_mb")

    @property
    def large_weights(self) -> int:
        """Weights of the large model."""
        return max(1, round(self.large_mb * 1e6 / FLOAT))
