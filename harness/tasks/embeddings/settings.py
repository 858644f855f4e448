"""The settings that all runs with embeddings share, with their checks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from harness.tasks.settings import (
    bound,
    require,
    require_counts,
    require_spread,
    spread,
)
from lockstep.errors import unknown_name

__all__ = ["EmbeddingSettings"]


@dataclass(frozen=True)
class EmbeddingSettings:
    """The settings of one run, whatever its rows represent.

    Attributes:
        optimizer: name of an optimizer of TensorFlow 1, and its arguments.
        limit: one of ``LIMITS`` of the task: ``none``; ``clip``, rows after each step,
            by the wrapper; ``normalise``, every row to ``max_norm`` before each step;
            ``penalty``, a part of the loss; ``lookup``, rows as they are looked up.
        max_norm: the largest norm of an unchanged row.
        steps: optimizer steps of training.
        checkpoints: measurements during training, at equal distances.
        batch: examples per step.
        width: elements of a row.
    """

    LIMITS: ClassVar[tuple[str, ...]] = ()

    optimizer: Mapping[str, Any]
    limit: str
    max_norm: float
    steps: int
    checkpoints: int
    batch: int
    width: int

    def __post_init__(self) -> None:
        if self.limit not in self.LIMITS:
            raise unknown_name("limit", self.limit, self.LIMITS)
        counts = [field.name for field in fields(self) if field.type == "int"]
        require_counts(self, *counts)
        require_spread(self.checkpoints, self.steps)
        number = isinstance(self.max_norm, int | float)
        finite = number and 0 < self.max_norm < math.inf
        require(finite, "max_norm", "a finite number > 0", self.max_norm)
        object.__setattr__(self, "max_norm", float(self.max_norm))
        object.__setattr__(self, "optimizer", bound(self.optimizer))

    @property
    def measured_at(self) -> list[int]:
        """The steps after which everything is measured, including 0."""
        return spread(self.checkpoints, self.steps)
