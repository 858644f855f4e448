"""The figures of the experiment, drawn from a finding's tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Literal

import pandas as pd
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from harness.figures.plot import Drawing
from harness.figures.style import THIN, WIDTH, Theme
from harness.judgement.finding import Finding
from harness.tasks.embeddings.cells import quoted
from harness.tasks.embeddings.drawing import draw_curves, draw_intervals, legend
from harness.tasks.recommender.findings import IDENTICAL, NAMES
from harness.tasks.recommender.tables import ratio

__all__ = ["drawings"]

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
