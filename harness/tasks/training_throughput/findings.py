"""Compute the answer: examples per second with a wrapper, relative to a bare step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.judgement.finding import NO_ANSWER, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Interval, overlap
from harness.tasks.training_throughput import tables
from harness.tasks.training_throughput.settings import BATCH, WORKLOADS
from harness.tasks.training_throughput.training import CONTROL

__all__ = ["APART", "METRICS", "judge", "match"]

APART = ("workload", "precision")
"""The settings that distinguish runs in the tables."""

SLACK = 0.1
"""The largest distance of intervals of ratios, because machines differ."""


def _over_bare(variant: str) -> Metric:
    """Return the metric of a variant's rate relative to the bare step's of the run."""

    def read(record: Record) -> float:
        if not tables.is_timed(record):
            return 0.0 if record.status == "diverged" else np.nan
        return record.summary[f"rate/{variant}"] / record.summary["rate/bare"]

    return Metric(read, "ratio", "larger")


METRICS = {"ratio": _over_bare("wrapped"), "control": _over_bare(CONTROL)}
"""The metrics of a run, which are both comparisons within it."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make a table of the records and state the answer."""
    table = tables.rates(records)
    return Judgement(_answer(table), {"rates": table}, _small_print(table))


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare ratios, which agree between machines; absolute rates do not."""
    keys = ["workload", "precision", "backend"]
    columns = [*keys, *RATIO]
    both = published["rates"][columns].merge(
        own["rates"][columns], on=keys, suffixes=("_published", "_own")
    )
    both = both.dropna()
    agree = [
        overlap(_interval(row, "_published"), _interval(row, "_own"), SLACK)
        for _, row in both.iterrows()
    ]
    return both.assign(matches=pd.Series(agree, index=both.index, dtype=bool))


RATIO = ("ratio", "ratio_low", "ratio_high")


def _interval(row: pd.Series, whose: str = "") -> Interval:
    return Interval(*(np.asarray(row[f"{name}{whose}"]) for name in RATIO))


def _answer(table: pd.DataFrame) -> str:
    timed = table[table["seeds"] > 0].sort_values("ratio", kind="stable")
    if not len(timed):
        return f"{NO_ANSWER}."
    worst, best = timed.iloc[0], timed.iloc[-1]
    text = f"A wrapped step has {_quoted(worst)} times the throughput of the bare step"
    if len(timed) > 1:
        text += f" at worst, and {_quoted(best)} times at best"
    low, high = timed["control"].min(), timed["control"].max()
    return (
        f"{text}. Two identical bare steps differ by a factor of "
        f"{low:.2f} to {high:.2f}."
    )


def _quoted(row: pd.Series) -> str:
    interval = f"[{row['ratio_low']:.2f}, {row['ratio_high']:.2f}]"
    where = f"{row['workload']}, {row['precision']}, {row['backend']}"
    return f"{row['ratio']:.2f} {interval} ({where})"


def _small_print(table: pd.DataFrame) -> list[str]:
    missing = table[table["seeds"] == 0][["precision", "device"]].drop_duplicates()
    untimed = (
        f"Not measured yet: {row['precision']} on {row['device']}."
        for _, row in missing.iterrows()
    )
    return [
        *(f"{name}: {what}." for name, what in WORKLOADS.items()),
        "A step is forward, backward and update, with the same batch every time: "
        f"{', '.join(f'{count} ({name})' for name, count in BATCH.items())}. The base "
        "optimizer is SGD, with momentum for dense weights. It is among the cheapest, "
        "so that what a wrapper adds shows. TensorFlow's Adam cannot train bfloat16 "
        "weights, because 1 - beta2 is 0 there.",
        "Each run takes bare, wrapped and bare steps again in turns, in one process "
        "and one thread; a rate follows from the tenth percentile of their times. "
        "Ratios are made within a run. Medians over seeds with 95% intervals.",
        "TensorFlow and Keras steps are compiled by tf.function, those of PyTorch are "
        "eager.",
        *untimed,
    ]
