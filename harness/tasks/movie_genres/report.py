"""Tables and figures of the heads of genres, from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.absent_heads import laws
from harness.tasks.absent_heads import report as arms
from harness.tasks.absent_heads.training import WRAPPED
from harness.tasks.cells import Cell, cells
from harness.tasks.movie_genres.task import GENRES, RAREST, Settings

APART = ("optimizer.name", "wrapper")
"""The settings that distinguish runs in the tables."""


def error(record: Record, genres: Sequence[str] = GENRES) -> float:
    """Return the mean of the heads' root mean squared errors at the end, in stars."""
    if record.status != "ok":
        return np.inf
    squares = [record.series[f"loss/{genre}"][-1] for genre in genres]
    return float(np.mean(np.sqrt(squares)))


METRICS = {
    "error": Metric(error, "stars, mean of the genres", "smaller"),
    "documentary error": Metric(partial(error, genres=[RAREST]), "stars", "smaller"),
    "documentary movement": Metric(
        partial(arms.relative_movement, heads=[RAREST]),
        "learning rates per informative step",
        "smaller",
    ),
}
"""The metrics by which runs are compared."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records."""
    of = cells(records, Settings, _label)
    return Judgement({"comparison": arms.comparison(of, error), "heads": heads(of)})


def _label(of: Settings) -> dict[str, Any]:
    return {"optimizer": of.optimizer["name"], "wrapper": of.wrapper}


def heads(of: Sequence[Cell[Settings]]) -> pd.DataFrame:
    """The ratio of movements of each genre's head, zeros over wrapper, and its law.

    Movements are in learning rates per step with the genre, in the second half of
    training. Every step has some genre, so Adam's powers of beta advance in each step.
    """
    rows = []
    for fed, wrapped in arms.against_zeros(of):
        settings = wrapped.settings
        if settings.wrapper not in WRAPPED:
            continue
        window = settings.steps // 2, settings.steps
        for genre in GENRES:
            share = _presence([*fed.records, *wrapped.records], genre)
            if not 0 < share <= 1:
                continue
            law = laws.movement(settings.optimizer, "none", share, window)
            law /= laws.movement(settings.optimizer, "strict", share, window)
            read = partial(arms.relative_movement, heads=[genre])
            rows.append(arms.head_row((fed, wrapped), genre, share, read, law))
    return pd.DataFrame(rows, columns=arms.HEADS)


def _presence(records: Sequence[Record], genre: str) -> float:
    """Return the share of steps with a genre, over the runs that ended."""
    counts = [
        record.series[f"informative/{genre}"][-1] / record.config["steps"]
        for record in records
        if record.status == "ok"
    ]
    return float(np.mean(counts)) if counts else np.nan


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    tables = finding.tables
    if "sweep" in tables:
        yield arms.draw_sweep(tables["sweep"], "error", "stars")
    if len(tables["comparison"]):
        yield arms.draw_comparison(tables["comparison"], "error")
    if tables["heads"]["ratio"].notna().any():
        yield arms.draw_heads(tables["heads"], "One point a genre.")
