"""The settings of one run."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.embeddings.settings import EmbeddingSettings

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

    users: int
    items: int
    timings: int
