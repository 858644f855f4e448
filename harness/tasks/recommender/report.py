"""Tables and figures of what limits on norms cost and promise, from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pandas as pd

from harness.figures.marks import curves, dots, first_backend, unique
from harness.figures.plot import Drawing
from harness.figures.style import Theme
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.cells import Cell, cells, over_time
from harness.tasks.embeddings import report as tables
from harness.tasks.embeddings.report import NAMES, last, quoted, with_cases
from harness.tasks.recommender.task import Settings
from harness.timing import AGAIN

SERIES = ("ndcg", "highest/named", "highest/stored", "highest/served", "above")
POPULAR = "ndcg/popularity"

IDENTICAL = (f"clip{AGAIN}", "clip")
"""Two names of the same work, which is timed twice on other tables: the control."""

RATIOS = (("clip", "none"), ("lookup", "none"), IDENTICAL)
"""The compared pairs of times."""

TIMES = {"lookup": "lookup at serving", "step": "training step"}
SHOWN = {
    "highest/named": "rows just named",
    "highest/stored": "all rows, as stored",
    "highest/served": "all rows, as used",
}
"""Series -> its name in a figure."""


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
    "rows above the limit": last("above", "share of the rows that are served"),
    "lookup time": _time_ratio("lookup", "lookup", "clip"),
    "step time": _time_ratio("step", "clip", "lookup"),
}
"""The metrics by which runs are compared. A run with clipping measures the times of all
limits, so a ratio is within one run."""


def judge(records: Sequence[Record]) -> Judgement:
    of = cells(
        records,
        Settings,
        lambda of: {"optimizer": of.optimizer["name"], "limit": of.limit},
    )
    popular = {POPULAR: [np.median(of[0].last(POPULAR))]}
    frames = {
        "cost": cost(of),
        "promise": promise(of),
        "ends": tables.ends(of, SERIES),
        "baselines": pd.DataFrame(popular),
        # NDCG@10 after so many seconds of training.
        "seconds": over_time(
            of,
            "ndcg",
            lambda cell: tables.measured(cell, "ndcg"),
            lambda cell: timed_step(cell, of),
        ),
    }
    return Judgement(frames)


def cost(of: Sequence[Cell]) -> pd.DataFrame:
    """Times as ratios: ``estimate`` = time of ``limit`` / time of ``against``.

    For a training step, and for a lookup in a served model. The ratio is computed in
    each run: the median over the seeds with its interval, the ``lowest`` and the
    ``highest`` run.
    """
    rows = []
    clipped = [cell for cell in of if cell.settings.limit == "clip"]
    for cell, what, names in product(clipped, ("step", "lookup"), RATIOS):
        times = [cell.last(f"seconds/{what}/{name}") for name in names]
        ratios = times[0] / times[1]
        ratios = ratios[np.isfinite(ratios)]
        if not len(ratios):
            continue
        row = {
            "what": what,
            **cell.labels,
            **dict(zip(("limit", "against"), names, strict=True)),
            **bootstrap(median, ratios).columns("estimate"),
            "lowest": ratios.min(),
            "highest": ratios.max(),
        }
        rows.append(row)
    numbers = ["against", "estimate", "low", "high", "lowest", "highest"]
    return pd.DataFrame(rows, columns=["what", *of[0].labels, *numbers])


def promise(of: Sequence[Cell]) -> pd.DataFrame:
    """The guarantees of a limit: the highest norms of all runs, relative to the limit.

    ``named``: of the rows of the latest step, as stored, over all checkpoints.
    ``served``: of all rows at the end. ``above``: the share of all rows that are used
    above the limit at the end, the mean over the seeds.
    """
    rows = [
        {
            **cell.labels,
            "named": cell.column("highest/named")[:, 1:].max(),
            "served": cell.end("highest/served").max(),
            "above": cell.end("above").mean(),
        }
        for cell in of
    ]
    return pd.DataFrame(rows)


def timed_step(cell: Cell, of: Sequence[Cell]) -> float:
    """Return the median seconds of a step; NaN without times.

    The runs that clip take the times of all limits in turns.
    """
    for other in of:
        alike = other.labels == {**cell.labels, "limit": "clip"}
        times = other.last(f"seconds/step/{cell.settings.limit}")
        if alike and np.isfinite(times).any():
            return float(np.nanmedian(times))
    return np.nan


def drawings(finding: Finding) -> Iterator[Drawing]:
    if len(finding.tables["cost"]):
        yield draw_cost(finding)
    yield draw_promise(finding)
    yield draw_ranks(finding)
    if len(finding.tables["seconds"]):
        yield draw_seconds(finding)


def draw_cost(finding: Finding) -> Drawing:
    """Times relative to those without a limit, of steps and of lookups."""
    cost = finding.tables["cost"]
    bare = cost[cost["against"] == "none"]
    lookup, step = (
        bare[(bare["what"] == what) & (bare["limit"] == limit)]["estimate"]
        for what, limit in (("lookup", "lookup"), ("step", "clip"))
    )
    same = cost[cost["limit"] == IDENTICAL[0]].groupby("what")
    rows = bare.assign(
        kind=bare["what"].map(TIMES),
        control_low=bare["what"].map(same["lowest"].min()),
        control_high=bare["what"].map(same["highest"].max()),
    )
    return dots(
        "cost",
        f"Normalizing takes {quoted(lookup, '.1f')} times a bare lookup, clipping "
        f"{quoted(step, '.1f')} times a bare step",
        with_cases(rows, "kind", "optimizer"),
        "estimate",
        "time / time without a limit",
        hues=NAMES,
        alt="Time of a served lookup and of a training step, over that without a "
        f"limit, with intervals. {finding.answer}",
        caption="The median over the runs with its 95% interval. Left is faster. Grey: "
        "by how much identical work differs in single runs.",
        data=cost,
        level=1,
        control="identical work",
    )


def draw_promise(finding: Finding) -> Drawing:
    """The highest norms of items at the end."""
    end = finding.tables["promise"]
    clipped = end[end["limit"] == "clip"]
    title = "The highest norm of rows over the limit"
    if len(clipped):
        title = (
            f"Clipped, rows just named keep to {quoted(clipped['named'], '.4f')} times "
            f"the limit, others reach {quoted(clipped['served'])}"
        )
    rows = finding.tables["ends"]
    rows = rows[rows["what"].isin(SHOWN)]
    rows = rows.assign(name=rows["what"].map(SHOWN))
    return dots(
        "promise",
        title,
        with_cases(rows, "optimizer", "name"),
        "median",
        "highest norm / limit",
        hues=NAMES,
        alt="Highest norm over the limit at the end: of rows that a step has just "
        "named, of all rows as they are stored and as they are used.",
        caption="The highest norm of a film's row over the limit: of the rows that the "
        "latest step named, of all rows in the table, and of all rows as the model "
        "uses them. Median over seeds with its 95% interval.",
        level=1,
    )


def draw_ranks(finding: Finding) -> Drawing:
    """NDCG at the end, beside that of the most popular items."""
    rows = finding.tables["ends"].query("what == 'ndcg'")
    rows = with_cases(rows, "optimizer")
    parts = [
        f"{quoted(values)} ({NAMES[str(hue)]})"
        for hue, values in rows.groupby("hue", sort=False)["median"]
    ]
    popular = finding.tables["baselines"][POPULAR].iloc[0]
    return dots(
        "ranks",
        f"NDCG@10 ends at {', '.join(parts)}",
        rows,
        "median",
        "NDCG@10 (line: the most popular films)",
        hues=NAMES,
        alt="NDCG@10 at the end for the three ways to limit norms, beside what the "
        "most popular films reach.",
        caption="NDCG@10 of held-out ratings among all films that a user has not rated "
        "in training. Right is better. Median over seeds with its 95% interval.",
        level=popular,
    )


def draw_seconds(finding: Finding) -> Drawing:
    """NDCG against the seconds of training, with the last optimizer."""
    rows = first_backend(finding.tables["seconds"])
    name = rows["optimizer"].iloc[-1]
    rows = with_cases(rows[rows["optimizer"] == name], "optimizer")
    end = rows.groupby("hue", sort=False)["seconds"].max()
    parts = [f"{seconds:.2f} s ({NAMES[str(hue)]})" for hue, seconds in end.items()]

    def looks(theme: Theme) -> dict[str, dict[str, str]]:
        return {
            hue: {"color": theme.hue(hue), "label": NAMES[hue]}
            for hue in unique(rows["hue"])
        }

    return curves(
        "seconds",
        f"With {name}, {rows['step'].max()} steps take {', '.join(parts)}",
        rows.assign(method=rows["hue"]),
        "seconds",
        "ndcg",
        ("seconds of training", "NDCG@10"),
        looks=looks,
        alt="NDCG@10 of held-out ratings against the seconds of training, for the "
        "three ways to limit norms.",
        caption="Seconds are steps times the median time of a step, which the runs "
        "that clip take for all limits in turns. Median over seeds with its 95% "
        "interval.",
        data=finding.tables["seconds"],
    )
