"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from harness.statistics import bootstrap, median
from harness.tasks.embeddings.cells import Cell
from harness.timing import AGAIN

__all__ = ["baselines", "cost", "promise", "ratio"]

RATIOS = (
    *(("clip", "none"), ("lookup", "none"), ("clip", "lookup"), ("lookup", "clip")),
    (f"clip{AGAIN}", "clip"),
)
"""The compared pairs; the last one is the control: the same work on other tables."""

BASELINES = ("ndcg/popularity", "recall/popularity", "ndcg/chance", "recall/chance")


def cost(of: Sequence[Cell]) -> pd.DataFrame:
    """Times as ratios: ``estimate`` = time of ``limit`` / time of ``against``.

    For a training step, and for a lookup in a served model. The ratio is computed in
    each run: the median over the seeds with its interval, the ``lowest`` and the
    ``highest`` run. ``microseconds`` = the median time of ``limit`` on the measuring
    machine; ``per_second`` = its reciprocal.
    """
    rows = []
    for cell in (cell for cell in of if cell.settings.limit == "clip"):
        for what in ("step", "lookup"):
            for limit, against in RATIOS:
                mine, other = (
                    cell.last(f"seconds/{what}/{name}") for name in (limit, against)
                )
                known = np.isfinite(mine) & np.isfinite(other)
                if not known.any():
                    continue
                mine, ratios = mine[known], mine[known] / other[known]
                taken = float(np.median(mine))
                labels = {**cell.labels, "limit": limit, "against": against}
                numbers = bootstrap(median, ratios).columns("estimate")
                ends = {"lowest": ratios.min(), "highest": ratios.max()}
                times = {"microseconds": 1e6 * taken, "per_second": 1 / taken}
                rows.append({"what": what, **labels, **numbers, **ends, **times})
    numbered = ["against", "estimate", "low", "high", "lowest", "highest"]
    columns = ["what", *of[0].labels, *numbered, "microseconds", "per_second"]
    return pd.DataFrame(rows, columns=columns)


def promise(of: Sequence[Cell]) -> pd.DataFrame:
    """The guarantees of a limit: the highest norms of all runs, relative to the limit.

    ``named``: of the rows of the latest step, as stored, over all checkpoints.
    ``stored`` and ``served``: of all rows at the end. ``above``: the share of all rows
    that are used above the limit at the end, the mean over the seeds.
    """
    rows = []
    for cell in of:
        named = cell.measured("highest/named")[:, 1:].max()
        ends = {
            name: cell.measured(f"highest/{name}")[:, -1].max()
            for name in ("stored", "served")
        }
        above = cell.measured("above")[:, -1].mean()
        rows.append({**cell.labels, "named": named, **ends, "above": above})
    return pd.DataFrame(rows)


def baselines(of: Sequence[Cell]) -> pd.DataFrame:
    """NDCG@10 and recall@10 of the most popular films and of random films.

    One row: the median over the seeds, of the first arm that has them.
    """
    for cell in of:
        values = {name: cell.last(name) for name in BASELINES}
        known = np.isfinite(values[BASELINES[0]])
        if known.any():
            row = {
                name: float(np.median(value[known])) for name, value in values.items()
            }
            return pd.DataFrame([row])
    return pd.DataFrame(columns=list(BASELINES))


def ratio(table: pd.DataFrame, what: str, limit: str, against: str) -> pd.DataFrame:
    """Return the rows of the cost table that compare two limits."""
    chosen = (table["what"] == what) & (table["limit"] == limit)
    rows: pd.DataFrame = table[chosen & (table["against"] == against)]
    return rows
