"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from harness.figures.plot import Drawing
from harness.figures.style import THIN, WIDTH, Theme
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.embeddings.cells import (
    Cell,
    agreeing,
    backends,
    cells,
    curves,
    differences,
    last,
    quoted,
)
from harness.tasks.embeddings.drawing import draw_curves, draw_intervals, legend
from harness.tasks.recommender.task import Settings
from harness.timing import AGAIN

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


APART = ("optimizer.name", "limit")
"""The settings that distinguish runs in the tables."""

SERIES = (
    *("loss", "ndcg", "recall", "norm/frequent", "norm/rare"),
    *("highest/named", "highest/stored", "highest/served", "above"),
)

NAMES = {"none": "without a limit", "clip": "clipped", "lookup": "normalized"}

IDENTICAL = (f"clip{AGAIN}", "clip")
"""Two names of the same work, which is timed twice."""


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
    of = cells(records, Settings)
    lines = curves(of, SERIES)
    frames = {
        "cost": cost(of),
        "promise": promise(of),
        "effect": differences(of, ["ndcg", "recall", "loss"], "clip"),
        "ends": lines[lines["step"] == lines["step"].max()],
        "baselines": baselines(of),
        "curves": lines,
        "backends": backends(of, "loss"),
    }
    return Judgement(tables=frames)


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare the effects of limits on ranks and loss; times depend on the machine."""
    return agreeing(published["effect"], own["effect"])


TIMES = {"lookup": "lookup at serving", "step": "training step"}

HIGHEST = {
    "highest/named": "rows just named",
    "highest/stored": "all rows, as stored",
    "highest/served": "all rows, as used",
}

GROUPS = {"norm/frequent": "frequent films", "norm/rare": "rare films"}

RANKS = {"ndcg": "NDCG@10", "recall": "recall@10"}


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    if len(finding.tables["cost"]):
        yield _cost(finding)
    yield _promise(finding)
    yield _norms(finding)
    yield _ranks(finding)


def _cost(finding: Finding) -> Drawing:
    cost = finding.tables["cost"]
    lookup = ratio(cost, "lookup", "lookup", "none")["estimate"]
    step = ratio(cost, "step", "clip", "none")["estimate"]
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
        paint=partial(_paint_cost, cost=cost),
    )


def _paint_cost(canvas: Canvas, theme: Theme, cost: pd.DataFrame) -> None:
    table = cost[cost["against"] == "none"]
    names, backends, limits = (
        list(dict.fromkeys(table[column]))
        for column in ("optimizer", "backend", "limit")
    )
    panels = canvas.subplots(1, len(TIMES), sharey=True)
    cases, apart = list(product(backends, names)), [-0.13, 0.13]
    for panel, (what, title) in zip(panels, TIMES.items(), strict=True):
        here = table[table["what"] == what].copy()
        here["place"] = [
            cases.index((row["backend"], row["optimizer"]))
            + apart[limits.index(row["limit"])]
            for _, row in here.iterrows()
        ]
        same = ratio(cost, what, *IDENTICAL)
        if len(same):
            ends = same["lowest"].min(), same["highest"].max()
            panel.axvspan(*ends, color=theme.faint, alpha=0.35, lw=0)
        panel.axvline(1, color=theme.ink, lw=THIN)
        draw_intervals(panel, here, theme)
        panel.set_title(title)
        panel.set_xlabel("time / time without a limit")
        panel.set_xlim(left=0)
        panel.grid(visible=False, axis="y")
    panels[0].set_yticks(
        range(len(cases)), [f"{name}, {backend}" for backend, name in cases]
    )
    panels[0].set_ylim(len(cases) - 0.5, -0.5)
    shade = Patch(color=theme.faint, alpha=0.35, lw=0, label="identical work")
    legend(canvas, theme, limits, backends, [shade], lines=False)


def _promise(finding: Finding) -> Drawing:
    curves = _chosen(finding, HIGHEST)
    end = finding.tables["promise"]
    clipped = end[end["limit"] == "clip"]
    title = "The highest norm of rows over the limit"
    if len(clipped):
        title = (
            f"Clipped, rows just named keep to {quoted(clipped['named'], '.4f')} times "
            f"the limit, others reach {quoted(clipped['served'])}"
        )
    return Drawing(
        "promise",
        title,
        alt="Highest norm over the limit, over the steps: of rows that a step has just "
        "named, of all rows as they are stored and as they are used.",
        caption="The highest norm of a film's row over the limit (1 in the picture): "
        "of the rows that the latest step named, of all rows in the table, and of all "
        "rows as the model uses them. At step 0 no row has been named. Median over "
        "seeds, the 95% interval as a band.",
        data=curves,
        size=(WIDTH, 4.8),
        paint=partial(
            _paint_curves,
            curves=curves,
            titles=HIGHEST,
            label="highest norm / limit",
            levels={"limit": dict.fromkeys(HIGHEST, 1.0)},
        ),
    )


def _norms(finding: Finding) -> Drawing:
    curves = _chosen(finding, GROUPS)
    last = curves[
        (curves["step"] == curves["step"].max()) & (curves["limit"] == "none")
    ]
    frequent, rare = (
        quoted(last[last["what"] == what]["median"], ".1f") for what in GROUPS
    )
    title = (
        f"Without a limit frequent films end at norm {frequent}, rare ones at {rare}"
    )
    return Drawing(
        "norms",
        title if frequent else "The norms of frequent and of rare films",
        alt="Median norm of the rows of frequent and of rare films over the steps, for "
        "the three ways to limit norms.",
        caption="Median norm of the rows of the most rated tenth and of the least "
        "rated half of the films, as the model uses them; the median over seeds, its "
        "95% interval as a band.",
        data=curves,
        size=(WIDTH, 4.8),
        paint=partial(
            _paint_curves, curves=curves, titles=GROUPS, label="median norm", levels={}
        ),
    )


def _ranks(finding: Finding) -> Drawing:
    curves = _chosen(finding, RANKS)
    ends = curves[(curves["what"] == "ndcg") & (curves["step"] == curves["step"].max())]
    parts = [
        f"{quoted(rows['median'])} {NAMES[str(limit)]}"
        for limit, rows in ends.groupby("limit", sort=False)
    ]
    table = finding.tables["baselines"]
    levels = {
        "most popular films": {
            what: float(table[f"{what}/popularity"].iloc[0]) for what in RANKS
        }
    }
    return Drawing(
        "ranks",
        f"NDCG@10 ends at {', '.join(parts)}",
        alt="NDCG@10 and recall@10 over the steps for the three ways to limit norms, "
        "beside what the most popular films reach.",
        caption="NDCG@10 and recall@10 of held-out ratings among all films that a user "
        "has not rated in training. Median over seeds, the 95% interval as a band.",
        data=curves,
        size=(WIDTH, 4.8),
        paint=partial(
            _paint_curves,
            curves=curves,
            titles=RANKS,
            label="",
            levels=levels if len(table) else {},
        ),
    )


def _paint_curves(
    canvas: Canvas,
    theme: Theme,
    curves: pd.DataFrame,
    titles: Mapping[str, str],
    label: str,
    levels: Mapping[str, Mapping[str, float]],
) -> None:
    """Draw a panel per optimizer (rows) and measure (columns), with thin levels."""
    names = list(dict.fromkeys(curves["optimizer"]))
    shape = len(names), len(titles)
    share: Literal["row", "col"] = "row" if label else "col"
    panels = canvas.subplots(*shape, sharex=True, sharey=share, squeeze=False)
    for (row, name), (column, what) in product(enumerate(names), enumerate(titles)):
        panel = panels[row, column]
        here = (curves["optimizer"] == name) & (curves["what"] == what)
        draw_curves(panel, curves[here], theme)
        if row == 0:
            panel.set_title(titles[what])
        for heights in levels.values():
            panel.axhline(heights[what], color=theme.ink, lw=THIN)
    for row, name in enumerate(names):
        panels[row, 0].set_ylabel(f"{name}\n{label}".strip())
    for panel in panels[-1]:
        panel.set_xlabel("step")
    lines = [Line2D([], [], color=theme.ink, lw=THIN, label=name) for name in levels]
    legend(canvas, theme, curves["limit"], curves["backend"], lines)


def _chosen(finding: Finding, names: Mapping[str, str]) -> pd.DataFrame:
    curves = finding.tables["curves"]
    rows: pd.DataFrame = curves[curves["what"].isin(list(names))]
    return rows
