"""The rule of a step: SGD with momentum on the unscaled gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.tasks.scaler_limits.batches import SHAPE, Batches
from harness.tasks.scaler_limits.settings import Settings

__all__ = ["Law"]

TOLERANCE = 1e-3
"""The largest deviation of a step from the rule, as a share of rate |g|. Weights of a
few units are rounded by 1e-7 of them, and the smallest gradients move them by 0.01."""


class Law:
    """Compares the steps of a run with d <- momentum d - rate g min(1, c / |g|)."""

    def __init__(self, settings: Settings, clip_norm: float = np.inf) -> None:
        self.settings, self.clip_norm = settings, clip_norm
        self.moved = np.zeros(SHAPE)

    def holds(
        self, batch: Batches, before: Sequence[Any], after: Sequence[Any]
    ) -> bool:
        """Whether an applied step moved the weights by d; False if |g| is 0 or inf."""
        expected = self.settings.momentum * self.moved
        self.moved = np.subtract(after, before, dtype=np.float64)
        gradient = batch.astype(np.float64)
        norm = np.sqrt((gradient**2).sum())
        if not 0 < norm < np.inf:
            return False
        update = self.settings.rate * gradient * min(1.0, self.clip_norm / norm)
        gap = np.abs(self.moved - (expected - update)).max()
        return bool(gap <= TOLERANCE * np.abs(update).max())
