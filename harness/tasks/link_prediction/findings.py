"""Compute the answer: whether a limit on norms improves TransE's ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.figures.tables import first_backend, grouped
from harness.judgement.finding import NO_ANSWER, Judgement, joined
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

FIRST = ("none", "clip")
"""The two limits that the answer compares."""

WORDS = {
    "clip": "with rows clipped after each step",
    "normalise": "with all rows normalized before each step",
    "penalty": "with an L2 penalty",
}


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records and state the answer."""
    of = cells(records, Settings, lambda settings: {"graph": settings.name})
    lines = curves(of, SERIES).assign(max_norm=of[0].settings.max_norm)
    frames = {
        "effect": differences(of, ["mrr", "hits", "loss"]),
        "ends": lines[lines["step"] == lines["step"].max()].merge(chance(of)),
        "curves": lines,
        "backends": backends(of, "loss"),
    }
    return Judgement(_answer(frames), frames, list(_small_print(frames, records)))


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


def _answer(frames: Mapping[str, pd.DataFrame]) -> str:
    effect, ends = (first_backend(frames[name]) for name in ("effect", "ends"))
    sentences = [*_of_the_need(_of(effect, "clip", "mrr")), *_of_ends(ends)]
    return " ".join(sentences) or f"{NO_ANSWER}."


def _of_the_need(clipped: pd.DataFrame) -> Iterator[str]:
    """Quote in how many cases clipping improves ranks."""
    if clipped.empty:
        return
    cases = len(clipped)
    better, worse = _better(clipped), _worse(clipped)
    need = f"TransE needs a limit on norms in {better} of {cases} cases"
    if not better:
        need = "No case shows that TransE needs a limit on norms"
    yield (
        f"{need}: with rows clipped after each step its mean reciprocal rank is higher "
        f"in {better} and lower in {worse} of {cases}."
    )


def _of_ends(ends: pd.DataFrame) -> Iterator[str]:
    """Quote the ranks of every graph, without a limit and with clipping."""
    parts = []
    for (graph,), rows in grouped(ends[ends["what"] == "mrr"], "graph"):
        free, held = (quoted(rows[rows["limit"] == x]["median"]) for x in FIRST)
        by_chance = quoted(rows["chance"].iloc[:1])
        if free and held:
            parts.append(
                f"on {graph} it is {free} without a limit and {held} clipped (chance: "
                f"{by_chance})"
            )
    if parts:
        text = joined(parts)
        yield f"{text[0].upper()}{text[1:]}."


def _small_print(
    frames: Mapping[str, pd.DataFrame], records: Sequence[Record]
) -> Iterator[str]:
    effect, ends = (first_backend(frames[name]) for name in ("effect", "ends"))
    yield (
        f"Higher and lower mean: by more than {NEGLIGIBLE:g} in the whole of the "
        "interval (95%, bootstrapped over seeds, runs paired by seed). A case is a "
        "graph with an optimizer, on the first backend."
    )
    for limit, words in WORDS.items():
        mrr = _of(effect, limit, "mrr")
        if len(mrr):
            yield (
                f"{words[0].upper()}{words[1:]}, mean reciprocal rank differs by "
                f"{quoted(mrr['estimate'], '+.3f')} and hits@10 by "
                f"{quoted(_of(effect, limit, 'hits')['estimate'], '+.3f')} from runs "
                f"without a limit: higher in {_better(mrr)} and lower in {_worse(mrr)} "
                f"of {len(mrr)} cases."
            )
    yield from _of_norms(ends)
    yield _of_margins([Settings(**record.config) for record in records])
    yield _of_data(Settings(**records[0].config))
    if len(frames["backends"]):
        yield (
            "With the same seed, two backends differ only in rounding. Training "
            "amplifies such differences, so only the intervals must agree."
        )


def _of_norms(ends: pd.DataFrame) -> Iterator[str]:
    """Quote the share of rows above the limit and the longest row of each arm."""
    names = {"none": "without a limit", **WORDS}
    for limit, words in names.items():
        above, highest = (_of(ends, limit, what) for what in ("above", "norm/highest"))
        if len(above):
            yield (
                f"At the end, {words}, {quoted(100 * above['median'], '.0f')}% of the "
                f"entities' rows are above the limit, and the longest has norm "
                f"{quoted(highest['median'])}."
            )


def _of_margins(settings: Sequence[Settings]) -> str:
    """Quote the margin of every limit, over the graphs."""
    names = {"none": "without a limit", **WORDS}
    margins: dict[str, list[float]] = {}
    for each in settings:
        margins.setdefault(each.limit, []).append(each.margin)
    parts = [f"{quoted(of, 'g')} {names[limit]}" for limit, of in margins.items()]
    return f"The margin between true and false links is {joined(parts)}."


def _of_data(settings: Settings) -> str:
    return (
        f"All arms start from the same rows, of norm {settings.start:g}; the limit is "
        f"{settings.max_norm:g}. A link is ranked by its tail and by its head among "
        "all entities, without those that make another link of the graph (filtered). "
        "The contradictory reports: Bordes et al. (2013) normalise; thunlp/OpenKE, "
        "issue 32, saw almost no effect. Graphs and their splits are those of PyKEEN."
    )


def _better(rows: pd.DataFrame) -> int:
    return int((rows["low"] > NEGLIGIBLE).sum())


def _worse(rows: pd.DataFrame) -> int:
    return int((rows["high"] < -NEGLIGIBLE).sum())


def _of(table: pd.DataFrame, limit: str, what: str) -> pd.DataFrame:
    rows: pd.DataFrame = table[(table["limit"] == limit) & (table["what"] == what)]
    return rows


def _ranks(effect: pd.DataFrame) -> pd.DataFrame:
    rows: pd.DataFrame = effect[effect["what"].isin(["mrr", "hits"])]
    return rows
