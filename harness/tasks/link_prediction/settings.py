"""The settings of one run, and the constants of the model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.tasks.embeddings.settings import EmbeddingSettings
from harness.tasks.settings import require

__all__ = ["MARGIN", "RELATIONS", "Settings"]

MARGIN = 1.0
"""By how much a false link should be worse than a true one (Bordes et al. 2013)."""

RELATIONS = (1, 2, 4)
"""Relation k holds between characters that share at least so many chapters, but fewer
than the next number says."""


@dataclass(frozen=True)
class Settings(EmbeddingSettings):
    """What one run does, beside what all tasks with embeddings have.

    Attributes:
        start: root mean square of the norms that the entities' rows begin with.
    """

    start: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = isinstance(self.start, int | float) and 0 < self.start < math.inf
        require(positive, "start", "a finite number > 0", self.start)
        object.__setattr__(self, "start", float(self.start))
