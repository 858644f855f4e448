"""Tables and figures of what limits on norms cost and promise, from records alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas

from harness.figures.marks import backend_looks, forest, legend
from harness.figures.plot import Drawing
from harness.figures.style import THIN, WIDTH, Theme
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks import cells
from harness.tasks.embeddings import report as tables
from harness.tasks.embeddings.report import Cell, last, quoted
from harness.tasks.recommender.task import Settings
from harness.timing import AGAIN

APART = ("optimizer.name", "limit")
"""The settings that distinguish runs in the tables."""

SERIES = (
    *("loss", "ndcg", "recall", "norm/frequent", "norm/rare"),
    *("highest/named", "highest/stored", "highest/served", "above"),
)
BASELINES = ("ndcg/popularity", "recall/popularity", "ndcg/chance", "recall/chance")

IDENTICAL = (f"clip{AGAIN}", "clip")
"""Two names of the same work, which is timed twice on other tables: the control."""

RATIOS = (
    *(("clip", "none"), ("lookup", "none"), ("clip", "lookup"), ("lookup", "clip")),
    IDENTICAL,
)
"""The compared pairs of times."""

TIMES = {"lookup": "lookup at serving", "step": "training step"}
NAMES = {"none": "without a limit", "clip": "clipped", "lookup": "normalized"}


def _time_ratio(what: str, limit: str, against: str) -> Metric:
    """Return the metric of the ratio of two times of one run; NaN without times."""

    def read(record: Record) -> float:
        times = [
            record.summary.get(f"seconds/{what}/{name}", np.nan)
            for name in (limit, against)
        ]
        return times[0] / times[1]

    return Metric(read, f"time of {what}s, {limit} over {against}", "smaller")


METRICS = {
    "ndcg": last("ndcg", "NDCG@10"),
    "recall": last("recall", "recall@10"),
    "loss": last("loss", "nats"),
    "rows above the limit": last("above", "share of the rows that are served"),
    "lookup time": _time_ratio("lookup", "lookup", "clip"),
    "step time": _time_ratio("step", "clip", "lookup"),
    "lookup time again": _time_ratio("lookup", *IDENTICAL),
    "step time again": _time_ratio("step", *IDENTICAL),
}
"""The metrics by which runs are compared. A run with clipping measures the times of all
limits, so a ratio is within one run."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records."""
    of = cells.cells(records, Settings, _label)
    lines = tables.curves(of, SERIES)
    frames = {
        "cost": cost(of),
        "promise": promise(of),
        "effect": tables.differences(of, ["ndcg", "recall", "loss"], "clip"),
        "ends": lines[lines["step"] == lines["step"].max()],
        "baselines": baselines(of),
        "curves": lines,
        "backends": tables.backends(of, "loss"),
    }
    return Judgement(tables=frames)


def _label(of: Settings) -> dict[str, str]:
    return {"optimizer": of.optimizer["name"], "limit": of.limit}


def cost(of: Sequence[Cell]) -> pd.DataFrame:
    """Times as ratios: ``estimate`` = time of ``limit`` / time of ``against``.

    For a training step, and for a lookup in a served model. The ratio is computed in
    each run: the median over the seeds with its interval, the ``lowest`` and the
    ``highest`` run. ``microseconds`` = the median time of ``limit`` on the measuring
    machine; ``per_second`` = its reciprocal.
    """
    rows = []
    clipped = [cell for cell in of if cell.settings.limit == "clip"]
    for cell, what, names in product(clipped, ("step", "lookup"), RATIOS):
        times = [cell.last(f"seconds/{what}/{name}") for name in names]
        known = np.isfinite(times).all(axis=0)
        if not known.any():
            continue
        mine, ratios = times[0][known], (times[0] / times[1])[known]
        row = {
            "what": what,
            **cell.labels,
            **dict(zip(("limit", "against"), names, strict=True)),
            **bootstrap(median, ratios).columns("estimate"),
            "lowest": ratios.min(),
            "highest": ratios.max(),
            "microseconds": 1e6 * float(np.median(mine)),
            "per_second": 1 / float(np.median(mine)),
        }
        rows.append(row)
    numbers = ["against", "estimate", "low", "high", "lowest", "highest"]
    columns = ["what", *of[0].labels, *numbers, "microseconds", "per_second"]
    return pd.DataFrame(rows, columns=columns)


def promise(of: Sequence[Cell]) -> pd.DataFrame:
    """The guarantees of a limit: the highest norms of all runs, relative to the limit.

    ``named``: of the rows of the latest step, as stored, over all checkpoints.
    ``stored`` and ``served``: of all rows at the end. ``above``: the share of all rows
    that are used above the limit at the end, the mean over the seeds.
    """
    rows = []
    for cell in of:
        named, stored, served = (
            tables.measured(cell, f"highest/{name}")
            for name in ("named", "stored", "served")
        )
        row = {
            **cell.labels,
            "named": named[:, 1:].max(),
            "stored": stored[:, -1].max(),
            "served": served[:, -1].max(),
            "above": tables.measured(cell, "above")[:, -1].mean(),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def baselines(of: Sequence[Cell]) -> pd.DataFrame:
    """NDCG@10 and recall@10 of the most popular films and of random films.

    One row: the median over the seeds, of the first arm that has them.
    """
    for cell in of:
        values = np.array([cell.last(name) for name in BASELINES])
        known = values[:, np.isfinite(values[0])]
        if known.size:
            return pd.DataFrame([np.median(known, axis=1)], columns=list(BASELINES))
    return pd.DataFrame(columns=list(BASELINES))


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    if len(finding.tables["cost"]):
        yield draw_cost(finding)
    yield draw_promise(finding)
    yield draw_norms(finding)
    yield draw_ranks(finding)


def draw_cost(finding: Finding) -> Drawing:
    """Times relative to those without a limit; a panel for steps, one for lookups."""
    cost = finding.tables["cost"]
    bare = cost[cost["against"] == "none"]
    shown = bare.assign(case=bare["optimizer"] + ", " + bare["backend"])
    lookup, step = (
        bare[(bare["what"] == what) & (bare["limit"] == limit)]["estimate"]
        for what, limit in (("lookup", "lookup"), ("step", "clip"))
    )

    def paint(canvas: Canvas, theme: Theme) -> None:
        panels = canvas.subplots(1, len(TIMES), sharey=True)
        shade = {"color": theme.faint, "alpha": 0.35}
        for panel, (what, title) in zip(panels, TIMES.items(), strict=True):
            rows = shown[shown["what"] == what]
            same = cost[(cost["what"] == what) & (cost["limit"] == IDENTICAL[0])]
            panel.axvspan(same["lowest"].min(), same["highest"].max(), lw=0, **shade)
            panel.axvline(1, color=theme.ink, lw=THIN)
            colors = [tables.color(theme, limit) for limit in rows["limit"]]
            forest(panel, rows, "estimate", "case", colors)
            panel.set_title(title)
            panel.set_xlabel("time / time without a limit")
            panel.set_xlim(left=0)
        looks = tables.limit_looks(shown["limit"], theme, dashes=False)
        looks |= backend_looks(shown["backend"], theme)
        legend(canvas, looks | {"identical work": {**shade, "lw": 6}})

    return Drawing(
        "cost",
        f"Normalizing takes {quoted(lookup, '.1f')} times a bare lookup, clipping "
        f"{quoted(step, '.1f')} times a bare step",
        alt="Time of a served lookup and of a training step, over that without a "
        f"limit, with intervals. {finding.answer}",
        caption="Time over that without a limit (1 in the picture), the median over "
        "the runs with its 95% interval. Left is faster. Shaded: by how much "
        "identical work differs in single runs.",
        data=cost,
        size=(WIDTH, 3.2),
        paint=paint,
    )


def draw_promise(finding: Finding) -> Drawing:
    """The highest norms of items over the steps."""
    titles = {
        "highest/named": "rows just named",
        "highest/stored": "all rows, as stored",
        "highest/served": "all rows, as used",
    }
    rows = _chosen(finding, titles)
    end = finding.tables["promise"]
    clipped = end[end["limit"] == "clip"]
    title = "The highest norm of rows over the limit"
    if len(clipped):
        title = (
            f"Clipped, rows just named keep to {quoted(clipped['named'], '.4f')} times "
            f"the limit, others reach {quoted(clipped['served'])}"
        )
    level = "limit", dict.fromkeys(titles, 1.0)
    return Drawing(
        "promise",
        title,
        alt="Highest norm over the limit, over the steps: of rows that a step has just "
        "named, of all rows as they are stored and as they are used.",
        caption="The highest norm of a film's row over the limit (1 in the picture): "
        "of the rows that the latest step named, of all rows in the table, and of all "
        "rows as the model uses them. At step 0 no row has been named. Median over "
        "seeds, the 95% interval as a band.",
        data=rows,
        size=(WIDTH, 4.8),
        paint=tables.paint_curves(rows, "what", titles, "highest norm / limit", level),
    )


def draw_norms(finding: Finding) -> Drawing:
    """The median norms of frequent and of rare items over the steps."""
    titles = {"norm/frequent": "frequent films", "norm/rare": "rare films"}
    rows = _chosen(finding, titles)
    ends = _chosen(finding, titles, "ends").query("limit == 'none'")
    frequent, rare = (
        quoted(ends[ends["what"] == what]["median"], ".1f") for what in titles
    )
    free = f"Without a limit frequent films end at norm {frequent}, rare ones at {rare}"
    return Drawing(
        "norms",
        free if frequent else "The norms of frequent and of rare films",
        alt="Median norm of the rows of frequent and of rare films over the steps, for "
        "the three ways to limit norms.",
        caption="Median norm of the rows of the most rated tenth and of the least "
        "rated half of the films, as the model uses them; the median over seeds, its "
        "95% interval as a band.",
        data=rows,
        size=(WIDTH, 4.8),
        paint=tables.paint_curves(rows, "what", titles, "median norm"),
    )


def draw_ranks(finding: Finding) -> Drawing:
    """NDCG and recall over the steps, beside those of the most popular items."""
    titles = {"ndcg": "NDCG@10", "recall": "recall@10"}
    rows = _chosen(finding, titles)
    ends = _chosen(finding, ["ndcg"], "ends").groupby("limit", sort=False)["median"]
    parts = [f"{quoted(values)} {NAMES[str(limit)]}" for limit, values in ends]
    heights = {
        what: float(value)
        for what in titles
        for value in finding.tables["baselines"][f"{what}/popularity"]
    }
    level = "most popular films", heights
    return Drawing(
        "ranks",
        f"NDCG@10 ends at {', '.join(parts)}",
        alt="NDCG@10 and recall@10 over the steps for the three ways to limit norms, "
        "beside what the most popular films reach.",
        caption="NDCG@10 and recall@10 of held-out ratings among all films that a user "
        "has not rated in training. Median over seeds, the 95% interval as a band.",
        data=rows,
        size=(WIDTH, 4.8),
        paint=tables.paint_curves(rows, "what", titles, "", level),
    )


def _chosen(
    finding: Finding, names: Iterable[str], table: str = "curves"
) -> pd.DataFrame:
    """Return the rows of some series."""
    rows: pd.DataFrame = finding.tables[table]
    return rows[rows["what"].isin(list(names))]
