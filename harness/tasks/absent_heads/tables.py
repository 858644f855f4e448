"""The tables of arms with absent heads, computed from records alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.statistics import (
    Floats,
    Interval,
    bootstrap,
    median,
    overlap,
    paired_effects,
)
from harness.tasks.absent_heads.arms import NONE
from harness.tasks.cells import SeedCell, same_seeds

__all__ = [
    "COMPARISON",
    "HEADS",
    "Read",
    "against_zeros",
    "comparison",
    "head_row",
    "matched",
    "rate_of",
]

C = TypeVar("C", bound=SeedCell[Any])

Read = Callable[[Record], float]
"""A reader of a value of a run, such as its loss."""

MEASURED = ["ratio", "ratio_low", "ratio_high"]
TOLERANCE = 0.05
"""The largest distance of the intervals of a user's and a published ratio."""

COMPARISON = ["zeros", "arm", *MEASURED, "zeros_rate", "arm_rate", "seeds"]
HEADS = ["optimizer", "backend", "head", "presence", *MEASURED, "law"]
"""The columns, also of a table without rows."""


def against_zeros(of: Sequence[C]) -> Iterator[tuple[C, C]]:
    """Pair the cells with zeros with the other arms, by seed.

    The cells of a pair differ in the wrapper and, if each arm has its own rate, in the
    learning rate.
    """
    for fed, other in product(of, of):
        if fed.settings.wrapper != NONE or other.settings.wrapper == NONE:
            continue
        alike = replace(
            fed.settings,
            wrapper=other.settings.wrapper,
            optimizer={**fed.settings.optimizer, "learning_rate": rate_of(other)},
        )
        if fed.backend == other.backend and alike == other.settings:
            yield from same_seeds(fed, other)


def rate_of(cell: SeedCell[Any]) -> float:
    """Return the learning rate of a cell."""
    return float(cell.settings.optimizer["learning_rate"])


def comparison(
    of: Sequence[C], labels: Callable[[C], dict[str, Any]], read: Read
) -> pd.DataFrame:
    """Compare every arm with the one with zeros, paired by seed.

    ``zeros`` and ``arm`` are medians over the seeds, at the learning rates
    ``zeros_rate`` and ``arm_rate``. ``ratio`` = zeros / arm, the median with its
    interval. The value of a run that diverged is infinite.
    """
    rows = []
    for fed, other in against_zeros(of):
        one, two = numbers(fed, read), numbers(other, read)
        row = {
            **labels(other),
            "zeros": np.median(one),
            "arm": np.median(two),
            **_ratio(one, two),
            "zeros_rate": rate_of(fed),
            "arm_rate": rate_of(other),
            "seeds": len(one),
        }
        rows.append(row)
    names = list(labels(of[0])) if of else []
    return pd.DataFrame(rows, columns=[*names, *COMPARISON])


def matched(
    published: pd.DataFrame, own: pd.DataFrame, keys: Sequence[str]
) -> pd.DataFrame:
    """Compare a user's ratios with published ones: do the intervals nearly overlap?"""
    columns = [*keys, *MEASURED]
    both = published[columns].merge(
        own[columns], on=list(keys), suffixes=("_published", "_own")
    )
    both["matches"] = [
        overlap(_interval(row, "_published"), _interval(row, "_own"), TOLERANCE)
        for _, row in both.iterrows()
    ]
    return both


def _interval(row: pd.Series, suffix: str) -> Interval:
    return Interval(*(np.asarray(row[f"{name}{suffix}"]) for name in MEASURED))


def head_row(
    pair: tuple[C, C], head: str, presence: float, read: Read, law: float
) -> dict[str, Any]:
    """Return the ratio of a head's movements, with zeros over with the wrapper.

    Args:
        pair: the cell with zeros, and the one with the wrapper.
        head: the name of the head.
        presence: the share of the steps with the head.
        read: the movement of a run in learning rates per informative step.
        law: the ratio for a constant gradient.
    """
    fed, wrapped = pair
    return {
        "optimizer": fed.settings.optimizer["name"],
        "backend": fed.backend,
        "head": head,
        "presence": presence,
        **_ratio(numbers(fed, read), numbers(wrapped, read)),
        "law": law,
    }


def numbers(cell: C, read: Read) -> Floats:
    """Return a value of each run: [seeds]."""
    return np.array([read(record) for record in cell.records], float)


def _ratio(one: Floats, two: Floats) -> dict[str, Any]:
    """Return one / two, paired: the median with its interval; NaN without a pair."""
    there = ~(np.isnan(one) | np.isnan(two))
    if not there.any():
        return dict.fromkeys(MEASURED, np.nan)
    effects = paired_effects(one[there], two[there], "log ratio")
    columns = bootstrap(median, effects).named("ratio")
    return {name: float(np.exp(value)) for name, value in columns.items()}
