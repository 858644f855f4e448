"""Tables of the effect of the wrapper on the errors of the genres."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from harness.judgement.finding import Judgement
from harness.records.record import Record
from harness.tasks.absent_heads.tables import comparison, matched
from harness.tasks.movie_genres import tables
from harness.tasks.movie_genres.metrics import METRICS

__all__ = ["APART", "METRICS", "judge", "match"]

APART = ("optimizer.name", "wrapper")
"""The settings that distinguish runs in the tables."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records."""
    cells = tables.cells(records)
    frames = {
        "comparison": comparison(cells, lambda c: c.labels, METRICS["error"].read),
        "genres": tables.genres(cells),
        "heads": tables.heads(cells),
    }
    return Judgement(tables=frames)


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's ratios of errors with the published ones."""
    keys = ["optimizer", "wrapper", "backend"]
    return matched(published["comparison"], own["comparison"], keys)
