"""Tables of whether a limit on norms improves TransE's ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.judgement.finding import Judgement
from harness.records.record import Record
from harness.tasks.embeddings.cells import (
    Cell,
    agreeing,
    backends,
    cells,
    curves,
    differences,
    last,
)
from harness.tasks.link_prediction.settings import Settings

__all__ = ["APART", "METRICS", "NEGLIGIBLE", "SERIES", "judge", "match"]

APART = ("graph.name", "optimizer.name", "limit")
"""The settings that distinguish runs in the tables."""

METRICS = {
    "mrr": last("mrr", "mean reciprocal rank"),
    "validation mrr": last("mrr/validation", "mean reciprocal rank"),
    "hits": last("hits", "share of ranks up to 10"),
    "loss": last("loss", "margin loss"),
}
"""The metrics by which runs are compared, at the end of training."""

NEGLIGIBLE = 0.01
"""A negligible difference in mean reciprocal rank."""

SERIES = ("mrr", "hits", "loss", "norm/median", "norm/highest", "above")


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records."""
    of = cells(records, Settings, lambda settings: {"graph": settings.name})
    lines = curves(of, SERIES).assign(max_norm=of[0].settings.max_norm)
    frames = {
        "effect": differences(of, ["mrr", "hits", "loss"]),
        "ends": lines[lines["step"] == lines["step"].max()].merge(chance(of)),
        "curves": lines,
        "backends": backends(of, "loss"),
    }
    return Judgement(tables=frames)


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare the effects of limits in a user's runs with the published ones."""
    return agreeing(*(_ranks(tables["effect"]) for tables in (published, own)))


def chance(of: Sequence[Cell]) -> pd.DataFrame:
    """Return the metrics of random ranks on each graph.

    ``chance`` is a mean reciprocal rank; ``hits_chance`` a share of ranks up to 10.
    """
    rows = [
        {
            **cell.varied,
            "chance": np.fmax.reduce(cell.last("mrr/chance")),
            "hits_chance": np.fmax.reduce(cell.last("hits/chance")),
        }
        for cell in of
    ]
    return pd.DataFrame(rows).groupby("graph", sort=False, as_index=False).max()


# -- sentences -------------------------------------------------------------------------


def _ranks(effect: pd.DataFrame) -> pd.DataFrame:
    rows: pd.DataFrame = effect[effect["what"].isin(["mrr", "hits"])]
    return rows
