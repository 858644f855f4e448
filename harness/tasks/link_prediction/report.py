"""Tables and figures of whether a limit on norms improves TransE's ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from harness.figures.marks import dots, first_backend, log_axis
from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.record import Record
from harness.tasks.cells import cells
from harness.tasks.embeddings import report as tables
from harness.tasks.embeddings.report import NAMES, last, quoted, with_cases
from harness.tasks.link_prediction.task import Settings

METRICS = {
    "mrr": last("mrr", "mean reciprocal rank"),
    "validation mrr": last("mrr/validation", "mean reciprocal rank"),
}
"""The metrics by which runs are compared, at the end of training."""

SERIES = ("mrr", "norm/highest")


def judge(records: Sequence[Record]) -> Judgement:
    """Make a table of the records; ``chance`` is the mean reciprocal rank by chance."""
    of = cells(records, Settings, _label)
    chance = {cell.settings.graph.name: cell.last("mrr/chance")[0] for cell in of}
    ends = tables.ends(of, SERIES).assign(max_norm=of[0].settings.max_norm)
    return Judgement({"ends": ends.assign(chance=ends["graph"].map(chance))})


def _label(of: Settings) -> dict[str, str]:
    optimizer = of.optimizer["name"]
    return {"optimizer": optimizer, "graph": of.graph.name, "limit": of.limit}


def drawings(finding: Finding) -> Iterator[Drawing]:
    yield draw_ranks(finding)
    yield draw_norms(finding.tables["ends"])


def draw_ranks(finding: Finding) -> Drawing:
    """The mean reciprocal rank of each arm."""
    ends = finding.tables["ends"]
    chosen = ends[ends["what"] == "mrr"]
    shown = first_backend(chosen).pivot_table(
        "median", index=["graph", "optimizer"], columns="limit"
    )
    title = "Mean reciprocal rank at the end of training"
    if {"none", "clip"} <= set(shown):
        better = (shown["none"] > shown["clip"]).sum()
        title = (
            "Without a limit the median rank is better than with clipped rows in "
            f"{better} of {len(shown)} cases"
        )
    return dots(
        "ranks",
        title,
        with_cases(chosen, "graph", "optimizer"),
        "median",
        "mean reciprocal rank",
        hues=NAMES,
        alt="Mean reciprocal rank of test links at the end of training, a dot an arm. "
        f"{finding.answer}",
        caption="Mean reciprocal rank of test links, other true links left out "
        "(filtered). Further right is better. Median over seeds with its 95% "
        "interval.",
        data=chosen,
    )


def draw_norms(ends: pd.DataFrame) -> Drawing:
    """The highest norm at the end."""
    chosen = ends[ends["what"] == "norm/highest"]
    free = quoted(chosen[chosen["limit"] == "none"]["median"], ".1f")
    title = f"Without a limit the longest row reaches norm {free}"
    return dots(
        "norms",
        title if free else "The norm of the longest row, held to a limit",
        with_cases(chosen, "graph", "optimizer"),
        "median",
        "highest norm (line: the limit)",
        hues=NAMES,
        alt="Highest norm of an entity's row at the end. Without a limit it grows; "
        "else it stays near the limit.",
        caption="The highest norm of an entity's row at the end; the thin line is the "
        "limit. Median over seeds with its 95% interval.",
        data=chosen,
        level=chosen["max_norm"].iloc[0],
        axis=lambda panel: log_axis(panel, "x", [0.5, 1, 2, 3, 5, 7, 10]),
    )
