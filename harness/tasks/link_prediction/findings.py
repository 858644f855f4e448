"""The answer, computed: what a limit on norms does to ranks, loss and norms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.finding import NO_ANSWER, Judgement
from harness.records.record import Record
from harness.statistics import bootstrap
from harness.tables import first_backend
from harness.tasks.embeddings.cells import (
    Cell,
    agreeing,
    backends,
    cells,
    curves,
    differences,
    last,
    mean,
    quoted,
)
from harness.tasks.embeddings.rows import OVER
from harness.tasks.link_prediction.settings import RELATIONS, Settings

__all__ = ["APART", "METRICS", "NEGLIGIBLE", "judge", "match"]

APART = ("optimizer.name", "start", "limit")
"""The settings by which the tables tell runs apart."""

METRICS = {
    "mrr": last("mrr", "mean reciprocal rank"),
    "hits": last("hits", "share of ranks up to 10"),
    "loss": last("loss", "margin loss"),
}
"""The numbers by which runs are compared, at the end of training."""

NEGLIGIBLE = 0.01
"""A difference in MRR, or in hits, that nobody would mind."""

MEASURES = ("loss", "mrr", "hits", "norm/median", "norm/highest", "stored/highest")


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records and say the answer."""
    of = cells(records, Settings, varied=["start"])
    frames = {
        "effect": differences(of, ["mrr", "hits", "loss"]),
        "ends": ends(of),
        "curves": curves(of, MEASURES).assign(max_norm=of[0].settings.max_norm),
        "backends": backends(of, "loss"),
    }
    return Judgement(_answer(frames), frames, list(_small_print(frames, of)))


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare what limits change in a user's runs with what is published."""
    return agreeing(*(_ranks(tables["effect"]) for tables in (published, own)))


def ends(of: Sequence[Cell]) -> pd.DataFrame:
    """Every measure at the end of training: mean over the seeds with its interval.

    ``mrr_best`` is the highest MRR at any checkpoint of a run.
    """
    rows = []
    for cell in of:
        values = {name: cell.measured(name)[:, -1] for name in MEASURES}
        values["mrr_best"] = cell.measured("mrr").max(axis=1)
        for name, value in values.items():
            numbers = bootstrap(mean, value).columns("estimate")
            rows.append({**cell.labels, "what": name, **numbers})
    return pd.DataFrame(rows)


def _answer(frames: Mapping[str, pd.DataFrame]) -> str:
    clauses = list(_reached(frames["ends"]))
    effect = first_backend(frames["effect"])
    mrr, hits = (_of(effect, "none", what) for what in ("mrr", "hits"))
    cases = len(mrr)
    needed = int((mrr["high"] < -NEGLIGIBLE).sum())
    same = int(((mrr["low"] > -NEGLIGIBLE) & (mrr["high"] < NEGLIGIBLE)).sum())
    if cases and not needed and same == cases:
        clauses.append("the limit makes no difference that matters in any case")
    elif cases:
        lower = int((hits["high"] < -NEGLIGIBLE).sum())
        clauses.append(
            f"without the limit this rank is lower in {needed} of {cases} cases, and "
            f"hits@10 in {lower} of {cases}"
        )
    text = "; ".join(clauses) or NO_ANSWER
    tuned = " No learning rate was tuned." if clauses else ""
    return f"{text[:1].upper()}{text[1:]}.{tuned}"


def _reached(ends: pd.DataFrame) -> Iterator[str]:
    """Quote norms and ranks at the end, without a limit and with rows clipped."""
    free, held, looked = (
        quoted(_end(ends, limit, "mrr")) for limit in ("none", "clip", "lookup")
    )
    norms = quoted(_end(ends, "none", "norm/highest"), ".1f")
    rank = "the mean reciprocal rank of held-out links ends at"
    if free:
        yield f"without a limit norms reach {norms} and {rank} {free}"
    if held:
        yield f"with rows clipped after each step {rank} {held}"
    if looked and not (free and held):
        yield f"with rows normalised in the lookup {rank} {looked}"


def _small_print(
    frames: Mapping[str, pd.DataFrame], of: Sequence[Cell]
) -> Iterator[str]:
    ends, effect = first_backend(frames["ends"]), first_backend(frames["effect"])
    yield (
        "Lower means: lower than with rows clipped, "
        f"by more than {NEGLIGIBLE:g} in the whole of the interval (95 %, bootstrapped "
        "over seeds, runs paired by seed). A case is an optimizer and a start, on the "
        "first backend. All arms have the same learning rate of an optimizer, which "
        "was not tuned."
    )
    if _of(effect, "none", "mrr").empty:
        yield (
            "Whether the limit is needed cannot be said: this takes runs without a "
            "limit and runs with rows clipped."
        )
    else:
        yield from _without(ends, effect)
    looked = _of(effect, "lookup", "mrr")
    if len(looked):
        apart = int(((looked["high"] < 0) | (looked["low"] > 0)).sum())
        yield (
            "Normalised in the lookup instead of clipped after the step, MRR differs "
            f"by {quoted(looked['estimate'])}; the interval leaves out 0 in {apart} of "
            f"{len(looked)} cases. The rows that are stored reach norm "
            f"{quoted(_end(ends, 'lookup', 'stored/highest'))}."
        )
    yield from _drifting(ends, of[0])
    yield _data()
    if len(frames["backends"]):
        yield (
            "Two backends with the same seed differ by rounding alone, which training "
            "amplifies; what must agree are the intervals."
        )


def _without(ends: pd.DataFrame, effect: pd.DataFrame) -> Iterator[str]:
    """Quote what else differs between no limit and rows clipped."""
    loss = _of(effect, "none", "loss")
    lower = int((loss["high"] < 0).sum())
    yield (
        f"The training loss ends lower without the limit in {lower} of {len(loss)} "
        f"cases ({quoted(_end(ends, 'none', 'loss'))} instead of "
        f"{quoted(_end(ends, 'clip', 'loss'))}): longer rows make a margin cheap."
    )
    by_start = [
        f"{quoted(rows['estimate'])} from norm {start:.2f}"
        for start, rows in _of(effect, "none", "mrr").groupby("start")
    ]
    yield f"MRR without the limit, less that with it: {', '.join(by_start)}."
    free, held = (_end(ends, limit, "mrr_best") for limit in ("none", "clip"))
    yield (
        f"Stopped at its best checkpoint by MRR, a run without the limit reaches "
        f"{quoted(free)}, one with rows clipped {quoted(held)}."
    )


def _drifting(ends: pd.DataFrame, cell: Cell) -> Iterator[str]:
    """Yield sentences about rows that end above the limit though rows are clipped."""
    limit = cell.settings.max_norm
    held = ends[(ends["limit"] == "clip") & (ends["what"] == "norm/highest")]
    over = held[held["estimate"] > OVER * limit]
    for name, rows in over.groupby("optimizer"):
        yield (
            f"{name} also moves rows that a step does not name, and these are not "
            f"clipped: the highest norm ends at {quoted(rows['estimate'])} where the "
            f"limit is {limit:g}."
        )


def _data() -> str:
    return (
        "TransE normalises every entity to norm 1 before each batch; here rows are "
        "held to at most that. Links are pairs of characters who share a chapter of "
        f"Les Miserables, as {len(RELATIONS)} relations by how many they share, and "
        "stand in both directions. Data: D. E. Knuth, The Stanford GraphBase (1993), "
        "as in networkx. The contradictory reports: Bordes et al. (2013) normalise; "
        "thunlp/OpenKE, issue 32, saw almost no effect."
    )


def _of(effect: pd.DataFrame, limit: str, what: str) -> pd.DataFrame:
    rows: pd.DataFrame = effect[(effect["limit"] == limit) & (effect["what"] == what)]
    return rows


def _end(ends: pd.DataFrame, limit: str, what: str) -> np.ndarray:
    return np.asarray(_of(ends, limit, what)["estimate"], float)


def _ranks(effect: pd.DataFrame) -> pd.DataFrame:
    rows: pd.DataFrame = effect[effect["what"].isin(["mrr", "hits"])]
    return rows
