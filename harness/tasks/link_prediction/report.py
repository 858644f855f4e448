"""Tables and figures of whether a limit on norms improves TransE's ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas

from harness.figures.marks import backend_looks, forest, legend, unique
from harness.figures.plot import Drawing
from harness.figures.style import THIN, WIDTH, Theme
from harness.figures.tables import first_backend
from harness.judgement.finding import Finding, Judgement
from harness.records.record import Record
from harness.tasks import cells
from harness.tasks.embeddings import report as tables
from harness.tasks.embeddings.report import Cell, last, quoted
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
    of = cells.cells(records, Settings, _label)
    lines = tables.curves(of, SERIES).assign(max_norm=of[0].settings.max_norm)
    frames = {
        "effect": tables.differences(of, ["mrr", "hits", "loss"]),
        "ends": lines[lines["step"] == lines["step"].max()].merge(chance(of)),
        "curves": lines,
        "backends": tables.backends(of, "loss"),
    }
    return Judgement(tables=frames)


def _label(of: Settings) -> dict[str, str]:
    optimizer = of.optimizer["name"]
    return {"optimizer": optimizer, "graph": of.graph.name, "limit": of.limit}


def chance(of: Sequence[Cell]) -> pd.DataFrame:
    """Return the metrics of random ranks on each graph.

    ``chance`` is a mean reciprocal rank; ``hits_chance`` a share of ranks up to 10.
    """
    rows = [
        {
            "graph": cell.labels["graph"],
            "chance": np.fmax.reduce(cell.last("mrr/chance")),
            "hits_chance": np.fmax.reduce(cell.last("hits/chance")),
        }
        for cell in of
    ]
    return pd.DataFrame(rows).groupby("graph", sort=False, as_index=False).max()


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    yield draw_ranks(finding)
    yield draw_norms(finding.tables["curves"])


def draw_ranks(finding: Finding) -> Drawing:
    """The mean reciprocal rank of each arm; a panel per graph."""
    ends = finding.tables["ends"]
    chosen = ends[ends["what"] == "mrr"]
    names = [tables.NAMES[limit] for limit in chosen["limit"]]
    arms = (chosen["optimizer"] + ", " + names).str.replace("GradientDescent", "SGD")
    of_optimizers = chosen.assign(arm=arms).groupby("optimizer", sort=False)
    shown = pd.concat([rows for _, rows in of_optimizers])
    graphs = unique(shown["graph"])

    def paint(canvas: Canvas, theme: Theme) -> None:
        panels = canvas.subplots(1, len(graphs), sharey=True, squeeze=False)[0]
        for panel, graph in zip(panels, graphs, strict=True):
            rows = shown[shown["graph"] == graph]
            panel.axvline(rows["chance"].iloc[0], color=theme.ink, lw=THIN)
            colors = [tables.color(theme, limit) for limit in rows["limit"]]
            forest(panel, rows, "median", "arm", colors)
            panel.set_title(graph)
            panel.set_xlabel("mean reciprocal rank")
            panel.set_xlim(left=0)
        random = {"random ranks": {"color": theme.ink, "lw": THIN}}
        legend(canvas, backend_looks(shown["backend"], theme) | random)

    return Drawing(
        "ranks",
        _title(first_backend(finding.tables["effect"])),
        alt="Mean reciprocal rank of test links at the end of training, a dot an arm, "
        f"beside that of random ranks. {finding.answer}",
        caption="Mean reciprocal rank of test links, other true links left out "
        "(filtered). Further right is better. Median over seeds with its 95% "
        "interval; the thin line is what random ranks lead to.",
        data=chosen,
        size=(WIDTH, 1.3 + 0.24 * shown["arm"].nunique()),
        paint=paint,
    )


def _title(effect: pd.DataFrame) -> str:
    clipped = effect[(effect["limit"] == "clip") & (effect["what"] == "mrr")]
    if clipped.empty:
        return "Mean reciprocal rank at the end of training"
    better = int((clipped["low"] > NEGLIGIBLE).sum())
    worse = int((clipped["high"] < -NEGLIGIBLE).sum())
    return (
        f"Clipped rows rank better than rows without a limit in {better} of "
        f"{len(clipped)} cases, and worse in {worse}"
    )


def draw_norms(curves: pd.DataFrame) -> Drawing:
    """The highest norm over the steps; a panel per optimizer and graph."""
    chosen = curves[curves["what"] == "norm/highest"]
    end = chosen[chosen["step"] == chosen["step"].max()]
    free = quoted(end[end["limit"] == "none"]["median"], ".1f")
    title = f"Without a limit the longest row reaches norm {free}"
    graphs = {graph: graph for graph in unique(chosen["graph"])}
    level = "limit", dict.fromkeys(graphs, chosen["max_norm"].iloc[0])
    ticks = [0.5, 1, 2, 3, 5, 7, 10]
    return Drawing(
        "norms",
        title if free else "The norm of the longest row, held to a limit",
        alt="Highest norm of an entity's row over the steps, one panel for each graph "
        "and optimizer. Without a limit it grows; else it stays near the limit.",
        caption="The highest norm of an entity's row; the thin line is the limit. "
        "Median over seeds, the 95% interval as a band.",
        data=chosen,
        size=(WIDTH, 4.8),
        paint=tables.paint_curves(
            chosen, "graph", graphs, "highest norm", level, ticks
        ),
    )
