"""The settings of one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.tasks.embeddings.settings import EmbeddingSettings
from harness.tasks.settings import require_number

__all__ = ["GROUPS", "Settings"]

GROUPS = ("frequent", "rare")
"""The most popular tenth of the items, and the least popular half."""


@dataclass(frozen=True)
class Settings(EmbeddingSettings):
    """What one run does, beside what all tasks with embeddings have.

    Attributes:
        start: root mean square of the norms that rows begin with.
        timings: how often each time is taken, in the runs that clip rows.
    """

    LIMITS: ClassVar[tuple[str, ...]] = ("none", "clip", "lookup")

    start: float
    timings: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number(self, "start")
        object.__setattr__(self, "start", float(self.start))
