"""The tables of the benchmark: how large they are, and which rows a step names."""

from __future__ import annotations

import numpy as np

from lockstep.interface import Array

__all__ = ["LIMIT", "LONG", "SHORT", "SMALL", "WIDTH", "named_rows"]

WIDTH = 64
"""Elements of a row."""

NAMED = 512
"""Rows that a step names; one that is drawn twice is named twice."""

LIMIT = 1.0
"""The largest norm that is left as it is."""

SHORT, LONG = 0.05, 0.5
"""The elements of a row of norm 0.4, and those of one of norm 4, which is clipped."""

SMALL = 10_000
"""The rows of the table that the others are held against."""


def named_rows(vocabulary: int, seed: int) -> Array:
    """Draw the rows that a step names: int64."""
    return np.random.default_rng(seed).integers(vocabulary, size=NAMED)
