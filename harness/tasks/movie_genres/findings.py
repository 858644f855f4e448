"""The answer, computed: what the wrapper does to the errors of rare genres."""

from __future__ import annotations

from harness.tasks.movie_genres.metrics import METRICS

__all__ = ["APART", "METRICS"]

APART = ("optimizer.name", "wrapper")
"""The settings by which the tables tell runs apart."""
