"""The data of a run on any backend: weights, and an update for each weight."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.tasks.lost_updates.settings import Settings
from lockstep.interface import Array

__all__ = ["Plan", "make_plan"]

LOWEST, HIGHEST = 4.0, 8.0
"""The range of the weights' log2: whole binades, for evenly spread mantissas."""


class Plan(NamedTuple):
    """All data of a run.

    Attributes:
        weights: [n] float16 with both signs; log2 of the magnitude is uniform.
        updates: [n] float16, weight / ratio, rounded, with random signs.
    """

    weights: Array
    updates: Array


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the data of one run."""
    stream = np.random.default_rng(seed)
    size = settings.weights
    signs = stream.choice([-1.0, 1.0], size=(2, size))
    magnitudes = 2.0 ** stream.uniform(LOWEST, HIGHEST, size)
    weights = (signs[0] * magnitudes).astype(np.float16)
    updates = signs[1] * np.abs(weights.astype(np.float64)) / settings.ratio
    return Plan(weights, updates.astype(np.float16))
