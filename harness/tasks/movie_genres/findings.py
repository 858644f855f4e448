"""Compute the answer: the effect of the wrapper on the errors of the genres."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.figures.tables import first_backend
from harness.judgement.finding import NO_ANSWER, Judgement
from harness.records.record import Record
from harness.tasks.absent_heads.arms import NONE, WRAPPED
from harness.tasks.absent_heads.sentences import (
    FIRST_SQUARE,
    of_comparison,
    of_law,
    of_ranges,
)
from harness.tasks.absent_heads.tables import comparison, matched
from harness.tasks.movie_genres import tables
from harness.tasks.movie_genres.metrics import METRICS

__all__ = ["APART", "METRICS", "judge", "match", "of_choices"]

APART = ("optimizer.name", "wrapper")
"""The settings that distinguish runs in the tables."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records and state the answer."""
    cells = tables.cells(records)
    frames = {
        "comparison": comparison(cells, lambda c: c.labels, METRICS["error"].read),
        "genres": tables.genres(cells),
        "heads": tables.heads(cells),
    }
    answer = " ".join(of_comparison(frames["comparison"], "error"))
    return Judgement(
        answer or f"{NO_ANSWER}.", frames, list(_small_print(frames, records))
    )


def of_choices(choices: pd.DataFrame) -> str:
    """Return a sentence about the learning rates that a sweep chose."""
    return of_ranges(choices)


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's ratios of errors with the published ones."""
    keys = ["optimizer", "wrapper", "backend"]
    return matched(published["comparison"], own["comparison"], keys)


def _small_print(
    frames: Mapping[str, pd.DataFrame], records: Sequence[Record]
) -> Iterator[str]:
    baselines = [r.summary["baseline"] for r in records if "baseline" in r.summary]
    if baselines:
        yield (
            "Error is the root of a head's mean squared error on held-out ratings of "
            "its genre, in stars, as mean over the 18 genres. To predict the mean "
            f"rating has an error of {np.median(baselines):.3f}."
        )
    yield (
        "A lower or higher error is counted where the whole interval of the ratio, "
        "paired by seed, lies on one side of 1. Intervals are bootstrapped over seeds "
        "(95%)."
    )
    yield from _of_rarest(frames["genres"])
    yield from of_law(frames["heads"])
    yield FIRST_SQUARE
    yield (
        "Ratings are those of MovieLens 100K. A movie of several genres trains several "
        "heads. With the mean over present genres, zeros are fed for absent ones too."
    )


def _of_rarest(genres: pd.DataFrame) -> Iterator[str]:
    """Quote the errors of the rarest genre, with zeros and the wrapper."""
    table = first_backend(genres.dropna(subset=["presence"]))
    if table.empty:
        return
    rare = table[table["presence"] == table["presence"].min()]["genre"].iloc[0]
    rows = table[table["genre"] == rare]
    parts = [
        f"{row['error']:.3f} [{row['low']:.3f}, {row['high']:.3f}] "
        f"({row['optimizer']} {'with zeros' if row['wrapper'] == NONE else 'wrapped'})"
        for _, row in rows[rows["wrapper"].isin((NONE, *WRAPPED))].iterrows()
    ]
    share = table["presence"].min()
    yield (
        f"The rarest genre, {rare}, is in {share:.0%} of the batches and ends at an "
        f"error of {', '.join(parts)}."
    )
