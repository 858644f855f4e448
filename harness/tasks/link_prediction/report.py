"""Tables of whether a limit on norms improves TransE's ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from harness.figures.axes import log_axis
from harness.figures.plot import Drawing
from harness.figures.style import THIN, WIDTH, Theme
from harness.figures.tables import first_backend
from harness.judgement.finding import Finding, Judgement
from harness.records.record import Record
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
from harness.tasks.embeddings.drawing import NAMES, draw_curves, draw_intervals, legend
from harness.tasks.link_prediction.task import Settings

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


def _ranks(effect: pd.DataFrame) -> pd.DataFrame:
    rows: pd.DataFrame = effect[effect["what"].isin(["mrr", "hits"])]
    return rows


LINE = 0.24
"""The height of a line of dots, in inches."""

OPTIMIZERS = {"GradientDescent": "SGD"}
"""Short names of optimizers beside an axis."""


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    yield _draw_ranks(finding)
    yield _norms(finding)


def _draw_ranks(finding: Finding) -> Drawing:
    ends = finding.tables["ends"]
    chosen = ends[ends["what"] == "mrr"]
    names, limits = (list(dict.fromkeys(chosen[c])) for c in ("optimizer", "limit"))
    arms = list(product(names, limits))
    return Drawing(
        "ranks",
        _title(finding),
        alt="Mean reciprocal rank of test links at the end of training, a dot an arm, "
        f"beside that of random ranks. {finding.answer}",
        caption="Mean reciprocal rank of test links, other true links left out "
        "(filtered). Further right is better. Median over seeds with its 95% "
        "interval; the thin line is what random ranks lead to.",
        data=chosen,
        size=(WIDTH, 1.3 + LINE * len(arms)),
        paint=partial(_paint_ranks, chosen=chosen, arms=arms),
    )


def _title(finding: Finding) -> str:
    effect = first_backend(finding.tables["effect"])
    clipped = effect[(effect["limit"] == "clip") & (effect["what"] == "mrr")]
    if clipped.empty:
        return "Mean reciprocal rank at the end of training"
    better = int((clipped["low"] > NEGLIGIBLE).sum())
    worse = int((clipped["high"] < -NEGLIGIBLE).sum())
    return (
        f"Clipped rows rank better than rows without a limit in {better} of "
        f"{len(clipped)} cases, and worse in {worse}"
    )


def _paint_ranks(
    canvas: Canvas, theme: Theme, chosen: pd.DataFrame, arms: list[tuple[str, str]]
) -> None:
    graphs, backends = (list(dict.fromkeys(chosen[c])) for c in ("graph", "backend"))
    panels = canvas.subplots(1, len(graphs), sharey=True, squeeze=False)[0]
    for panel, graph in zip(panels, graphs, strict=True):
        here = chosen[chosen["graph"] == graph].copy()
        here["place"] = [
            arms.index((row["optimizer"], row["limit"]))
            + 0.22 * backends.index(row["backend"])
            for _, row in here.iterrows()
        ]
        panel.axvline(here["chance"].iloc[0], color=theme.ink, lw=THIN)
        draw_intervals(panel, here.rename(columns={"median": "estimate"}), theme)
        panel.set_title(graph)
        panel.set_xlabel("mean reciprocal rank")
        panel.set_xlim(left=0)
        panel.grid(visible=False, axis="y")
    texts = [f"{OPTIMIZERS.get(name, name)}, {NAMES[limit]}" for name, limit in arms]
    panels[0].set_yticks(range(len(arms)), texts)
    panels[0].set_ylim(len(arms) - 0.4, -0.6)
    random = Line2D([], [], color=theme.ink, lw=THIN, label="random ranks")
    legend(canvas, theme, [], backends, [random], lines=False)


def _norms(finding: Finding) -> Drawing:
    curves = finding.tables["curves"]
    chosen = curves[curves["what"] == "norm/highest"]
    last = chosen[chosen["step"] == chosen["step"].max()]
    free = quoted(last[last["limit"] == "none"]["median"], ".1f")
    title = f"Without a limit the longest row reaches norm {free}"
    return Drawing(
        "norms",
        title if free else "The norm of the longest row, held to a limit",
        alt="Highest norm of an entity's row over the steps, one panel for each graph "
        "and optimizer. Without a limit it grows; else it stays near the limit.",
        caption="The highest norm of an entity's row; the thin line is the limit. "
        "Median over seeds, the 95% interval as a band.",
        data=chosen,
        size=(WIDTH, 4.8),
        paint=partial(_paint_norms, chosen=chosen),
    )


def _paint_norms(canvas: Canvas, theme: Theme, chosen: pd.DataFrame) -> None:
    graphs, names = (list(dict.fromkeys(chosen[c])) for c in ("graph", "optimizer"))
    shape = len(names), len(graphs)
    panels = canvas.subplots(*shape, sharex=True, sharey=True, squeeze=False)
    cells = product(enumerate(names), enumerate(graphs))
    for (row, name), (column, graph) in cells:
        panel: Axes = panels[row, column]
        here = (chosen["graph"] == graph) & (chosen["optimizer"] == name)
        draw_curves(panel, chosen[here], theme)
        panel.axhline(chosen["max_norm"].iloc[0], color=theme.ink, lw=THIN)
        panel.set_title(f"{graph}, {OPTIMIZERS.get(name, name)}")
    log_axis(panels[0, 0], "y", [0.5, 1, 2, 3, 5, 7, 10])
    for panel in panels[-1]:
        panel.set_xlabel("step")
    for panel in panels[:, 0]:
        panel.set_ylabel("highest norm")
    limit = Line2D([], [], color=theme.ink, lw=THIN, label="limit")
    legend(canvas, theme, chosen["limit"], chosen["backend"], [limit])
