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
    """The settings of one run, in addition to those of all tasks with embeddings.

    Attributes:
        start: the root mean square of the initial norms of rows.
        timings: the number of timings of each kind, in runs with clipping.
    """

    LIMITS: ClassVar[tuple[str, ...]] = ("none", "clip", "lookup")

    start: float
    timings: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number(self, "start")
        object.__setattr__(self, "start", float(self.start))
