"""The answer, computed: which updates are lost, and what masters keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.finding import Judgement
from harness.record import Record
from harness.tables import all_hold
from harness.tasks.lost_updates import tables

__all__ = ["claimed", "judge", "match"]

LIMIT = 2048
"""Micikevicius et al.: weight / update from which on updates may be lost."""

SAMPLING = 0.03
"""How far a share may miss its law: deviations of 4096 weights are below 0.008."""

TIES = 0.01
"""Up to the limit: weights that are powers of two lie on a tie, which goes to them."""

ROUNDING = 0.05
"""How far the median way may miss the one asked for: weights are rounded to float16."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, judge the claims by them and say the answer."""
    table = tables.updates(records)
    made = {"updates": table, "law": tables.curve(table)}
    claims = claimed(table)
    verdict = "not supported"
    if claims[0][1]:
        verdict = "reproduced" if all(holds for _, holds in claims) else "partly"
    return Judgement(_answer(table), verdict, made, _small_print(table, claims))


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's shares of lost updates with the published ones."""
    keys = ["method", "host", "ratio"]
    both = published["updates"][[*keys, "first"]].merge(
        own["updates"][[*keys, "first"]], on=keys, suffixes=("_published", "_own")
    )
    gap = np.abs(both["first_own"] - both["first_published"])
    return both.assign(matches=gap <= SAMPLING)


def claimed(table: pd.DataFrame) -> list[tuple[str, bool]]:
    """Return each claim with whether it holds on every host; the first is the main."""
    plain, masters = _plain(table), table[table["method"] == "masters"]
    below, above = plain[plain["ratio"] <= LIMIT], plain[plain["ratio"] > LIMIT]
    whole = plain[plain["ratio"] > 2 * LIMIT]
    return [
        (
            "float16 weights lose updates where weight / update is above 2048, and "
            "only there",
            all_hold(below["first"] <= TIES) and all_hold(above["first"] > TIES),
        ),
        (
            "the share lost is log2(weight / update) - 11: none up to 2048 but ties, "
            "all from 4096",
            all_hold(np.abs(plain["first"] - plain["law"]) <= SAMPLING)
            and all_hold(whole["first"] == 1),
        ),
        ("float32 masters lose none", all_hold(masters["lost"] == 0)),
        (
            "with masters the weights go all the way, whatever the ratio",
            all_hold(np.abs(masters["moved"] - 1) <= ROUNDING),
        ),
        (
            "hosts and NumPy lose the same updates",
            all_hold(np.abs(plain["first"] - plain["numpy"]) <= 1e-6),
        ),
    ]


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    rows: pd.DataFrame = table[table["method"] == "fp16"]
    return rows


def _answer(table: pd.DataFrame) -> str:
    first = table[table["host"] == table["host"].iloc[0]]
    plain, masters = _plain(first), first[first["method"] == "masters"]
    lost, ways = _by_ratio(plain, "first"), _by_ratio(plain, "moved")
    between = [ratio for ratio, law in _by_ratio(plain, "law").items() if 0 < law < 1]
    middle, highest = between[len(between) // 2], max(lost)
    return (
        f"float16 loses {lost[LIMIT]:.1%} of the updates where weight / update is "
        f"{LIMIT}, {lost[middle]:.0%} at {middle:.0f} and {lost[highest]:.0%} at "
        f"{highest:.0f}; float32 masters lose {masters['lost'].max():.0%}, and after "
        f"{plain['steps'].iloc[0]} steps at {highest:.0f} weights have gone "
        f"{ways[highest]:.0%} of the way without masters and "
        f"{_by_ratio(masters, 'moved')[highest]:.0%} with them."
    )


def _by_ratio(rows: pd.DataFrame, name: str) -> dict[float, float]:
    values = rows["ratio"].astype(float), rows[name].astype(float)
    return dict(zip(*values, strict=True))


def _small_print(table: pd.DataFrame, claims: Sequence[tuple[str, bool]]) -> list[str]:
    sentences = [
        f"{'Holds' if holds else 'Does not hold'}: {claim}." for claim, holds in claims
    ]
    worst = _plain(table)["moved"].max()
    sentences += [
        "The claim is that of Micikevicius et al. (2018): an update may become zero "
        "where the weight is at least 2048 times as large.",
        "At the limit every update is rounded to a whole step of float16, up or down: "
        f"weights go up to {worst:.2f} times as far as asked (median).",
        "SGD with a rate of 1 takes the same update in every step; weights between 16 "
        "and 256, log2 uniform. Medians over seeds, intervals bootstrapped (95 %).",
    ]
    return sentences
