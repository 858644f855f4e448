"""Norms of rows, as stored and as returned by a lookup."""

from __future__ import annotations

import numpy as np

from harness.tasks.embeddings.settings import EmbeddingSettings
from lockstep.interface import Array

__all__ = ["OVER", "norms", "served"]

OVER = 1 + 1e-6
"""A norm is above the limit from this factor on, because clipping is exact to ULPs."""


def norms(table: Array) -> Array:
    """Return the 2-norm of each row: [rows] float64."""
    result: Array = np.linalg.norm(table.astype(np.float64), axis=1)
    return result


def served(table: Array, settings: EmbeddingSettings) -> Array:
    """Return the rows as the model uses them: [rows, width] float64."""
    rows: Array = table.astype(np.float64)
    if settings.limit != "lookup":
        return rows
    longer = np.maximum(norms(table), settings.max_norm)
    return rows * (settings.max_norm / longer)[:, None]
