"""Compute the answer: which updates float16 loses, and which masters keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.figures.tables import first_backend
from harness.judgement.finding import NO_ANSWER, Judgement, joined
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.checks import Check, all_hold, both, listed
from harness.tasks.lost_updates import tables

__all__ = ["APART", "METRICS", "checks", "judge", "match"]

APART = ("method", "ratio")
"""The settings that distinguish runs in the tables."""

METRICS = {
    "updates lost": Metric(lambda r: r.summary["first"], "share", "smaller"),
    "way gone": Metric(lambda r: r.summary["moved"], "share", "larger"),
}
"""The metrics by which runs are compared."""

LIMIT = 2048
"""The ratio weight / update from which on updates may be lost (Micikevicius et al.)."""

SAMPLING = 0.03
"""The tolerance of a share; the deviations with 4096 weights are below 0.008."""

TIES = 0.01
"""The largest share lost up to the limit: ties of weights that are powers of two."""

ROUNDING = 0.05
"""The tolerance of the median relative movement, as weights are rounded to float16."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, check them and state the answer."""
    table = tables.updates(records)
    frames = {"updates": table, "law": tables.curve(table)}
    return Judgement(_answer(table), frames, _small_print(table, checks(table)))


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's shares of lost updates with the published ones."""
    keys = ["method", "backend", "ratio"]
    both = published["updates"][[*keys, "first"]].merge(
        own["updates"][[*keys, "first"]], on=keys, suffixes=("_published", "_own")
    )
    gap = np.abs(both["first_own"] - both["first_published"])
    return both.assign(matches=gap <= SAMPLING)


def checks(table: pd.DataFrame) -> list[Check]:
    """Return each check with whether it holds on every backend."""
    plain, masters = _plain(table), table[table["method"] == "masters"]
    below, above = plain[plain["ratio"] <= LIMIT], plain[plain["ratio"] > LIMIT]
    whole = plain[plain["ratio"] > 2 * LIMIT]
    return [
        (
            "float16 weights lose updates where weight / update is above 2048, and "
            "only there",
            both(all_hold(below["first"] <= TIES), all_hold(above["first"] > TIES)),
        ),
        (
            "the share lost is log2(weight / update) - 11: none up to 2048 but ties, "
            "all from 4096",
            both(
                all_hold(np.abs(plain["first"] - plain["law"]) <= SAMPLING),
                all_hold(whole["first"] == 1),
            ),
        ),
        ("float32 masters lose none", all_hold(masters["lost"] == 0)),
        (
            "with masters the weights go all the way, whatever the ratio",
            all_hold(np.abs(masters["moved"] - 1) <= ROUNDING),
        ),
        (
            "backends and NumPy lose the same updates",
            all_hold(np.abs(plain["first"] - plain["numpy"]) <= 1e-6),
        ),
    ]


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    rows: pd.DataFrame = table[table["method"] == "fp16"]
    return rows


def _answer(table: pd.DataFrame) -> str:
    first = first_backend(table)
    plain, masters = _plain(first), first[first["method"] == "masters"]
    sentences = [*_losses(plain), *_ways(plain, masters)]
    return " ".join(sentences) or f"{NO_ANSWER}."


def _losses(plain: pd.DataFrame) -> Iterator[str]:
    """Quote the loss of float16 at the limit, between the limits and at the end."""
    lost = _by_ratio(plain, "first")
    between = [ratio for ratio, law in _by_ratio(plain, "law").items() if 0 < law < 1]
    middle = between[len(between) // 2 :][:1]
    ratios = [*(r for r in lost if r == LIMIT), *middle, *list(lost)[-1:]]
    parts = [
        f"{lost[r]:.1%} at {r:g}" if r == LIMIT else f"{lost[r]:.0%} at {r:.0f}"
        for r in dict.fromkeys(ratios)
    ]
    if parts:
        share = "The share of updates that a float16 weight loses depends on the ratio"
        yield f"{share} weight / update: {joined(parts)}."


def _ways(plain: pd.DataFrame, masters: pd.DataFrame) -> Iterator[str]:
    """Quote the movement at the largest ratio, and the updates that masters lose."""
    parts = []
    for rows, name in (plain, "float16 weights"), (masters, "weights with masters"):
        if len(rows):
            ways = _by_ratio(rows, "moved")
            parts.append(
                f"{name} have moved {ways[max(ways)]:.0%} of what the updates add up to"
            )
    if parts:
        both = pd.concat([plain, masters])
        steps, highest = both["steps"].iloc[0], both["ratio"].astype(float).max()
        yield f"After {steps} steps at a ratio of {highest:.0f}, {' and '.join(parts)}."


def _by_ratio(rows: pd.DataFrame, name: str) -> dict[float, float]:
    values = rows["ratio"].astype(float), rows[name].astype(float)
    return dict(zip(*values, strict=True))


def _small_print(table: pd.DataFrame, checked: Sequence[Check]) -> list[str]:
    plain = _plain(table)
    at_limit = plain[plain["ratio"] == LIMIT]["moved"]
    rounded = [
        "At the limit every update is rounded to a whole step of float16, up or down: "
        f"weights go up to {at_limit.max():.2f} times as far as asked (median)."
    ]
    masters = table[table["method"] == "masters"]
    kept = [f"Float32 masters lose {masters['lost'].max():.0%} of the updates."]
    return [
        *(kept if len(masters) else []),
        *listed(checked),
        "The claim is that of Micikevicius et al. (2018): an update may become zero "
        "where the weight is at least 2048 times as large.",
        *(rounded if len(at_limit) else []),
        "SGD with a rate of 1 takes the same update in every step; weights between 16 "
        "and 256, log2 uniform. Medians over seeds, intervals bootstrapped (95%).",
    ]
