"""The tables of the benchmark: their sizes, and the rows of a step."""

from __future__ import annotations

import numpy as np

from lockstep.interface import Array

__all__ = ["LIMIT", "LONG", "SHORT", "SMALL", "WIDTH", "named_rows"]

WIDTH = 64
"""The number of elements of a row."""

NAMED = 512
"""The number of rows of a step; a row may be drawn twice."""

LIMIT = 1.0
"""The largest norm of an unchanged row."""

SHORT, LONG = 0.05, 0.5
"""The elements of a row of norm 0.4, and of a row of norm 4, which is clipped."""

SMALL = 10_000
"""The number of rows of the small table, with which the others are compared."""


def named_rows(vocabulary: int, seed: int) -> Array:
    """Draw the rows of a step: int64."""
    return np.random.default_rng(seed).integers(vocabulary, size=NAMED)
