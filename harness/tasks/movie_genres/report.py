"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.absent_heads import drawing, laws
from harness.tasks.absent_heads.arms import WRAPPED
from harness.tasks.absent_heads.tables import (
    HEADS,
    against_zeros,
    comparison,
    head_row,
    matched,
    rate_of,
)
from harness.tasks.cells import SeedCell, backend_of, by_config
from harness.tasks.movie_genres.task import GENRES, METRICS, Settings, error, movement

ERRORS = ["genre", "presence", "error", "low", "high"]


@dataclass(frozen=True)
class Cell(SeedCell[Settings]):
    """The runs that differ only in their seed, on one backend and device."""

    @property
    def labels(self) -> dict[str, Any]:
        """The columns that name the cell in every table."""
        return {
            "optimizer": self.settings.optimizer["name"],
            "wrapper": self.settings.wrapper,
            "backend": self.backend,
        }


def cells(records: Sequence[Record]) -> list[Cell]:
    """Group records that differ only in their seed, in order of appearance."""
    return [
        Cell(backend_of(group[0]), Settings(**group[0].config), group)
        for group in by_config(records)
    ]


def genres(of: Sequence[Cell]) -> pd.DataFrame:
    """The final error of each head in stars: median over seeds with interval.

    ``presence``: the share of the steps whose batch has the genre.
    """
    rows = []
    for cell in of:
        for genre in GENRES:
            errors = [error(record, genre) for record in cell.records]
            row = {**cell.labels, "learning_rate": rate_of(cell), "genre": genre}
            row["presence"] = presence(cell.records, genre)
            rows.append({**row, **bootstrap(median, errors).columns("error")})
    names = [*(of[0].labels if of else {}), "learning_rate", *ERRORS]
    return pd.DataFrame(rows, columns=names)


def heads(of: Sequence[Cell]) -> pd.DataFrame:
    """The ratio of movements of each genre's head, zeros over wrapper, and its law.

    Movements are in learning rates per step with the genre, in the second half of
    training. Every step has some genre, so Adam's powers of beta advance in each step.
    """
    rows = []
    for fed, wrapped in against_zeros(of):
        settings = wrapped.settings
        if settings.wrapper not in WRAPPED:
            continue
        window = settings.steps // 2, settings.steps
        for genre in GENRES:
            share = presence([*fed.records, *wrapped.records], genre)
            if not 0 < share <= 1:
                continue
            ends = [
                laws.movement(settings.optimizer, wrapper, share, window)
                for wrapper in (fed.settings.wrapper, "strict")
            ]
            read = partial(movement, genre=genre)
            pair = fed, wrapped
            rows.append(head_row(pair, genre, share, read, ends[0] / ends[1]))
    return pd.DataFrame(rows, columns=HEADS)


def presence(records: Sequence[Record], genre: str) -> float:
    """Return the share of steps with a genre, over the runs that ended."""
    counts = [
        record.series[f"informative/{genre}"][-1] / record.config["steps"]
        for record in records
        if record.status == "ok"
    ]
    return float(np.mean(counts)) if counts else np.nan


APART = ("optimizer.name", "wrapper")
"""The settings that distinguish runs in the tables."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records."""
    found = cells(records)
    frames = {
        "comparison": comparison(found, lambda c: c.labels, METRICS["error"].read),
        "genres": genres(found),
        "heads": heads(found),
    }
    return Judgement(tables=frames)


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's ratios of errors with the published ones."""
    keys = ["optimizer", "wrapper", "backend"]
    return matched(published["comparison"], own["comparison"], keys)


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    tables = finding.tables
    if "sweep" in tables:
        yield drawing.sweep(tables["sweep"], "error", "stars")
    if len(tables["comparison"]):
        yield drawing.comparison(tables["comparison"], "error")
    if tables["heads"]["ratio"].notna().any():
        yield drawing.heads(tables["heads"], "One point a genre.")
