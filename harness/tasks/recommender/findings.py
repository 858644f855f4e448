"""Compute the answer: the cost of limits, their guarantees and their effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.figures.tables import first_backend
from harness.judgement.finding import NO_ANSWER, Judgement, joined
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.embeddings.cells import (
    agreeing,
    backends,
    cells,
    curves,
    differences,
    last,
    quoted,
)
from harness.tasks.recommender import tables
from harness.tasks.recommender.settings import Settings
from harness.timing import AGAIN

__all__ = ["APART", "IDENTICAL", "METRICS", "NAMES", "SERIES", "judge", "match"]

APART = ("optimizer.name", "limit")
"""The settings that distinguish runs in the tables."""

SERIES = (
    *("loss", "ndcg", "recall", "norm/frequent", "norm/rare"),
    *("highest/named", "highest/stored", "highest/served", "above"),
)

NAMES = {"none": "without a limit", "clip": "clipped", "lookup": "normalized"}

LIMITING = ("clip", "lookup")

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
    """Make tables of the records and state the answer."""
    of = cells(records, Settings)
    lines = curves(of, SERIES)
    frames = {
        "cost": tables.cost(of),
        "promise": tables.promise(of),
        "effect": differences(of, ["ndcg", "recall", "loss"], "clip"),
        "ends": lines[lines["step"] == lines["step"].max()],
        "baselines": tables.baselines(of),
        "curves": lines,
        "backends": backends(of, "loss"),
    }
    settings = Settings(**records[0].config)
    return Judgement(_answer(frames), frames, list(_small_print(frames, settings)))


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare the effects of limits on ranks and loss; times depend on the machine."""
    return agreeing(published["effect"], own["effect"])


# -- sentences -------------------------------------------------------------------------


def _answer(frames: Mapping[str, pd.DataFrame]) -> str:
    sentences = [*_of_times(frames["cost"]), *_of_rows_and_ranks(frames)]
    return " ".join(sentences) or f"{NO_ANSWER}."


def _of_times(cost: pd.DataFrame) -> Iterator[str]:
    """Quote the claims' two ratios of times, and the ratios of identical work."""
    lookups = tables.ratio(cost, "lookup", "lookup", "clip")["estimate"]
    steps = tables.ratio(cost, "step", "clip", "lookup")["estimate"]
    if lookups.empty:
        return
    yield (
        f"At serving, normalizing in the lookup takes {quoted(lookups)} times as long "
        "as reading clipped rows. A training step that clips takes "
        f"{quoted(steps)} times as long as one that normalizes{_identical(cost)}."
    )


def _identical(cost: pd.DataFrame) -> str:
    """Quote the mean ratio of times of identical work."""
    same = [tables.ratio(cost, what, *IDENTICAL) for what in ("lookup", "step")]
    estimates = pd.concat(same)["estimate"]
    if estimates.empty:
        return ""
    return f" (identical work differs by factors of {quoted(estimates)})"


def _of_rows_and_ranks(frames: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Quote the rows above the limit with clipping, and the ranks of every limit."""
    clauses = []
    clipped = tables.of_limit(frames["promise"], "clip")
    if len(clipped):
        clauses.append(
            f"between updates clipping leaves {_percent(clipped['above'])} of the rows "
            "above the limit"
        )
    ends = first_backend(frames["ends"])
    ranks = ends[ends["what"] == "ndcg"]
    parts = [
        f"{quoted(rows['median'], '.3f')} {NAMES[str(limit)]}"
        for limit, rows in ranks.groupby("limit", sort=False)
    ]
    popular = quoted(frames["baselines"]["ndcg/popularity"], ".3f")
    beside = f" (most popular films: {popular})" if popular else ""
    clauses.append(f"NDCG@10 ends at {joined(parts)}{beside}")
    text = "; ".join(clauses)
    yield f"{text[0].upper()}{text[1:]}."


def _small_print(
    frames: Mapping[str, pd.DataFrame], settings: Settings
) -> Iterator[str]:
    yield (
        f"Times are tenth percentiles of {settings.timings} each, taken in turns in "
        f"one process with one thread; a step names {3 * settings.batch} rows of width "
        f"{settings.width}, so that the cost of calls weighs much. Another machine "
        "gives other times."
    )
    yield from _of_control(frames["cost"])
    over = [tables.ratio(frames["cost"], "step", each, "none") for each in LIMITING]
    if all(map(len, over)):
        yield (
            "Over the step without a limit: clipping takes "
            f"{quoted(over[0]['estimate'])} times as long, normalising "
            f"{quoted(over[1]['estimate'])} times."
        )
    yield from _of_promises(frames["promise"])
    yield from _of_effects(first_backend(frames["effect"]))
    yield (
        "A fifth of the ratings of MovieLens 100K is held out in each seed, whatever "
        "the rating; NDCG@10 and recall@10 rank all films that a user has not rated in "
        "training."
    )
    by_chance = quoted(frames["baselines"]["ndcg/chance"], ".3f")
    if by_chance:
        yield f"Films drawn at random reach an NDCG@10 of {by_chance}."
    if len(frames["backends"]):
        yield (
            "With the same seed, two backends differ only in rounding. Training "
            "amplifies such differences, so only the intervals must agree."
        )


def _of_control(cost: pd.DataFrame) -> Iterator[str]:
    """Quote the spread of the ratios of identical work over single runs."""
    for what in ("lookup", "step"):
        same = tables.ratio(cost, what, *IDENTICAL)
        if len(same):
            ends = pd.concat([same["lowest"], same["highest"]])
            yield (
                f"Identical {what}s on two sets of tables differ by factors of "
                f"{quoted(same['estimate'], '.3f')} in the median over runs, and of "
                f"{quoted(ends)} in single runs."
            )


def _of_promises(promise: pd.DataFrame) -> Iterator[str]:
    """Quote the largest norms with each limit."""
    for limit in LIMITING:
        rows = tables.of_limit(promise, limit)
        if len(rows):
            yield (
                f"With rows {NAMES[limit]}, those that a step has just named are "
                f"stored with at most {quoted(rows['named'])} of the limit, and the "
                f"longest that is served has {quoted(rows['served'])} of it."
            )


def _of_effects(effect: pd.DataFrame) -> Iterator[str]:
    for limit, words in (("none", "Without a limit"), ("lookup", "Normalised")):
        rows = effect[(effect["limit"] == limit) & (effect["what"] == "ndcg")]
        lower, higher = (rows["high"] < 0).sum(), (rows["low"] > 0).sum()
        if len(rows):
            yield (
                f"{words}, NDCG@10 differs by {quoted(rows['estimate'], '+.3f')} from "
                f"rows clipped: lower in {lower} and higher in {higher} of "
                f"{len(rows)} cases."
            )


def _percent(shares: pd.Series) -> str:
    return f"{quoted(100 * shares, '.2g')}%"
