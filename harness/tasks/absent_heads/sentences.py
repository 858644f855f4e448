"""Sentences of an answer about arms that each have their own learning rate."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from harness.figures.tables import first_backend, grouped
from harness.tasks.absent_heads.arms import NONE, WRAPPED

__all__ = ["FIRST_SQUARE", "better", "of_comparison", "of_law", "of_ranges", "worse"]

NAME, RATE = "optimizer.name", "optimizer.learning_rate"
"""Columns of a table of choices."""


FIRST_SQUARE = (
    "The mean square of TensorFlow 1's RMSProp begins at 1. With the wrapper only a "
    "task's own steps make it fade, and until then gradients below 1 move a head less."
)
"""The reason why RMSProp may differ from the law, which assumes gradients of size 1."""


def better(table: pd.DataFrame) -> pd.DataFrame:
    """Return the arms whose whole interval is lower than with zeros."""
    rows: pd.DataFrame = table[table["ratio_low"] > 1]
    return rows


def worse(table: pd.DataFrame) -> pd.DataFrame:
    """Return the arms whose whole interval is higher than with zeros."""
    rows: pd.DataFrame = table[table["ratio_high"] < 1]
    return rows


def of_comparison(table: pd.DataFrame, what: str) -> Iterator[str]:
    """Count where the wrapper ends lower and higher than zeros, and name the cases.

    Args:
        table: a comparison of arms; only its first backend is used.
        what: the compared value, such as ``held-out loss``.
    """
    rows = first_backend(table[table["wrapper"].isin(WRAPPED)])
    if rows.empty:
        return
    lower, higher = better(rows), worse(rows)
    if lower.empty and higher.empty:
        yield (
            "With the best learning rate for each arm, the wrapper ends with neither a "
            f"lower nor a higher {what} than zeros ({len(rows)} cases)."
        )
        return
    yield (
        "With the best learning rate for each arm, the wrapper ends with "
        f"a lower {what} than zeros in {len(lower)} of {len(rows)} cases"
        f"{_named(lower)} and with a higher one in {len(higher)}{_named(higher)}."
    )


def of_ranges(choices: pd.DataFrame) -> str:
    """Compare the best rates and the ranges of good rates, with zeros and the wrapper.

    Empty without a pair of such arms.
    """
    if not {"wrapper", NAME, RATE, "width"} <= set(choices.columns):
        return ""
    keys = [key for key in (NAME, "presence") if key in choices.columns]
    fed = choices[choices["wrapper"] == NONE]
    wrapped = choices[choices["wrapper"].isin(WRAPPED)]
    pairs = wrapped.merge(fed, on=keys, suffixes=("", "_fed"))
    if pairs.empty:
        return ""
    larger, smaller, wider, narrower = (
        (sign * (pairs[name] - pairs[f"{name}_fed"]) > 0).sum()
        for name in (RATE, "width")
        for sign in (1, -1)
    )
    if not larger + smaller + wider + narrower:
        return (
            "The best rate is the same with and without the wrapper, and so is the "
            "range of rates within 10% of the best."
        )
    return (
        f"With the wrapper the best rate is larger in {larger} of {len(pairs)} cases "
        f"and smaller in {smaller}, and the range of rates within 10% of the best is "
        f"wider in {wider} and narrower in {narrower}."
    )


def of_law(heads: pd.DataFrame) -> Iterator[str]:
    """Compare the movement of real heads with the law, by optimizer."""
    table = first_backend(heads.dropna(subset=["ratio", "law"]))
    for (name,), rows in grouped(table, "optimizer"):
        row = rows.sort_values("presence", kind="stable").iloc[0]
        yield (
            f"{name}, {row['head']}, in {row['presence']:.0%} of the "
            f"steps: without the wrapper a head moves {row['ratio']:.2f} "
            f"[{row['ratio_low']:.2f}, {row['ratio_high']:.2f}] times as many learning "
            f"rates per step of its task as with it; the law for a constant gradient "
            f"has {row['law']:.2f}."
        )


def _named(rows: pd.DataFrame) -> str:
    """List the cases and differences in parentheses; empty if there are none."""
    cases = []
    for _, row in rows.iterrows():
        where = f" at p = {row['presence']:g}" if "presence" in rows.columns else ""
        change = 100 * abs(1 / row["ratio"] - 1) if row["ratio"] else np.inf
        size = f"{change:.0f}" if change >= 10 else f"{change:.1f}"
        cases.append(f"{row['optimizer']}{where} by {size}%")
    return f" ({', '.join(cases)})" if cases else ""
