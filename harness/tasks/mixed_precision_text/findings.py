"""Compute the answer: which precisions end as well as float32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.figures.tables import first_backend
from harness.judgement.finding import NO_ANSWER, Judgement, joined
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Interval, overlap
from harness.tasks.checks import Check, all_hold, listed
from harness.tasks.mixed_precision_text import tables
from harness.tasks.mixed_precision_text.settings import Settings

__all__ = [
    "APART",
    "MARGIN",
    "METRICS",
    "checks",
    "is_equal",
    "judge",
    "match",
    "plain_name",
    "shown",
]

APART = ("method.label", "rate")
"""The settings that distinguish runs in the tables."""

METRICS = {
    "bits": Metric(
        lambda r: r.series["bits"][-1] if r.status == "ok" else np.inf,
        "bits a byte",
        "smaller",
    ),
    "steps to target": Metric(
        lambda r: float(np.nan_to_num(r.summary.get("to_target", np.inf), nan=np.inf)),
        "steps",
        "smaller",
    ),
}
"""The metrics by which runs are compared: final held-out bits, and steps to target."""

MARGIN = 0.01
"""An arm equals float32 if its interval is within this share of float32's bits."""

SLACK = 0.02
"""The largest distance of intervals of bits, because few seeds make them narrow."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, check them and state the answer."""
    cells = tables.cells(records)
    frames = {
        "ends": tables.ends(cells),
        "scales": tables.scales(cells),
        "curves": tables.curves(cells),
    }
    small_print = _small_print(frames, cells[0].settings)
    return Judgement(_answer(shown(frames["ends"])), frames, small_print)


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's bits with published ones of the same scale."""
    columns = [*tables.ARM, *BITS]
    both = published["ends"][columns].merge(
        own["ends"][columns], on=tables.ARM, suffixes=("_published", "_own")
    )
    agree = [
        overlap(_bits(row, "_published"), _bits(row, "_own"), SLACK)
        for _, row in both.iterrows()
    ]
    return both.assign(matches=pd.Series(agree, index=both.index, dtype=bool))


BITS = ("bits", "bits_low", "bits_high")


def _bits(row: pd.Series, whose: str) -> Interval:
    return Interval(*(np.asarray(row[f"{name}{whose}"]) for name in BITS))


def shown(ends: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the first backend, each method at its best rate."""
    return first_backend(ends[ends["best"]])


def checks(frames: Mapping[str, pd.DataFrame]) -> list[Check]:
    """Return each check with whether it holds on every backend."""
    scales = frames["scales"].dropna(subset=["skipped"])
    return [
        (
            "every arm skips the steps with an infinite gradient",
            all_hold(scales["skipped"] >= scales["injected"]),
        )
    ]


# -- sentences -------------------------------------------------------------------------


def _answer(ends: pd.DataFrame) -> str:
    half = ends[~ends["plain"] & ends["ratio"].notna()]
    sentences = [*_of_apart(half, ends), *_of_equal(half)] if len(half) else []
    return " ".join(sentences) or f"{NO_ANSWER}."


def is_equal(rows: pd.DataFrame) -> pd.Series:
    """Whether the interval of each ratio to float32 is within the margin."""
    return (rows["ratio_low"] >= 1 - MARGIN) & (rows["ratio_high"] <= 1 + MARGIN)


def plain_name(method: str) -> str:
    """Return the label of an arm without commas, for use in sentences."""
    return method.replace(", ", " ")


def _of_apart(half: pd.DataFrame, ends: pd.DataFrame) -> Iterator[str]:
    """Quote the arms that do not equal float32, the worst first."""
    apart = half[~is_equal(half)].sort_values("ratio", ascending=False, kind="stable")
    parts = [
        f"{plain_name(row['method'])} ends at {_ratio(row)}"
        for _, row in apart.iterrows()
    ]
    if parts:
        base = ends[ends["plain"]]["bits"].iloc[0]
        yield f"{joined(parts)} times float32's {base:.2f} bits per held-out byte."


def _of_equal(half: pd.DataFrame) -> Iterator[str]:
    """Quote how many arms equal float32, and their largest difference."""
    equal = half[is_equal(half)]
    if not len(equal):
        return
    widest = max(1 - equal["ratio_low"].min(), equal["ratio_high"].max() - 1)
    every = "All" if len(equal) == len(half) else "The other"
    text = (
        f"{every} {len(equal)} arms in half precision end within {widest:.2%} of "
        "float32"
    )
    strict = equal[equal["strict"]]
    if len(strict):
        names = joined([f"the original's {scale}" for scale in strict["scale"]])
        text += f", {names} among them"
    yield f"{text}."


def _ratio(row: pd.Series) -> str:
    return f"{row['ratio']:.2f} [{row['ratio_low']:.2f}, {row['ratio_high']:.2f}]"


def _small_print(frames: Mapping[str, pd.DataFrame], first: Settings) -> list[str]:
    steps = joined([str(step) for step in first.overflow_steps])
    return [
        *listed(checks(frames)),
        *_of_scales(frames["scales"]),
        "On a CPU, products of half precision are computed in float32 and rounded, in "
        "both passes: this is what tensor cores do, and native float16 products are "
        "far slower there. Norms, softmax and loss are in float32 in every arm.",
        f"In every run, steps {steps} get an infinite gradient.",
        f"Adam's epsilon is {first.epsilon:g} in every arm, because the usual 1e-8 is "
        "0 in float16: without masters the first step then divides by 0. Without "
        "masters Adam's moments have the dtype of the weights, too. To the second one "
        "Adam adds a thousandth of the gradient's square, which float16 makes 0 for "
        "gradients up to 0.005.",
        "This net has few gradients that float16 cannot hold. The experiment "
        '"Mixed precision" has a net that does not train without a loss scale.',
        f"Arms count as equal if the interval of the ratio lies within {MARGIN:.0%}.",
        f"Steps to target are those to {first.target:g} bits per byte, at checkpoints. "
        "Medians over seeds with 95% intervals; text, windows and first weights of a "
        "seed are the same in every arm. The text is the help of the Python that runs "
        "this, split by paragraphs.",
    ]


def _of_scales(scales: pd.DataFrame) -> Iterator[str]:
    """Quote the mean of each dynamic scale, on the first backend."""
    moving = first_backend(scales[scales["moves"]].dropna(subset=["mean"]))
    parts = [
        f"2^{row['mean']:.1f} with {plain_name(row['method'])}"
        for _, row in moving.iterrows()
    ]
    if parts:
        yield f"Over all steps the loss scale is on average {joined(parts)}."
