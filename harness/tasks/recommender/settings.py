"""The settings of one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.tasks.embeddings.settings import EmbeddingSettings
from harness.tasks.settings import require

__all__ = ["GROUPS", "Settings"]

GROUPS = ("frequent", "rare")
"""The most popular tenth of the items, and the least popular half."""


@dataclass(frozen=True)
class Settings(EmbeddingSettings):
    """What one run does, beside what all tasks with embeddings have.

    Attributes:
        users, items: rows of the two tables.
        timings: how often each time is taken, in the runs that clip rows.
    """

    LIMITS: ClassVar[tuple[str, ...]] = ("none", "clip", "lookup")

    users: int
    items: int
    timings: int

    def __post_init__(self) -> None:
        super().__post_init__()
        # The most popular tenth must be at least one item.
        require(self.items >= 10, "items", "at least 10", self.items)
