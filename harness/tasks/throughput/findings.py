"""Compute the answer: the speedup of each precision in examples per second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.judgement.finding import Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Interval, overlap
from harness.tasks.cells import on_gpus
from harness.tasks.throughput import tables
from harness.tasks.throughput.settings import MODES

__all__ = ["APART", "METRICS", "judge", "match"]

APART = ("mode", "depth", "width", "batch")
"""The settings that distinguish runs in the tables."""

SLACK = 0.1
"""The largest distance of intervals of rates, because clocks and cooling differ."""

NOTHING = "Not measured yet on a GPU; runs on a CPU are not counted."


def judge(records: Sequence[Record]) -> Judgement:
    """Make a table of the runs on GPUs and state the answer, or that there are none."""
    usable = on_gpus(records)
    if not usable:
        return Judgement(NOTHING, {}, _small_print())
    table = tables.rates(usable)
    return Judgement(_answer(table), {"rates": table}, _small_print())


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare rates on the same kind of device; the table may be empty."""
    keys = ["mode", "device", "net"]
    empty = pd.DataFrame(columns=[*keys, "rate", "rate_low", "rate_high"])
    both = published.get("rates", empty).merge(
        own.get("rates", empty), on=keys, suffixes=("_published", "_own")
    )
    agree = [
        overlap(_rate(row, "published"), _rate(row, "own"), SLACK)
        for _, row in both.iterrows()
    ]
    return both.assign(matches=pd.Series(agree, index=both.index, dtype=bool))


def _on_gpu(record: Record) -> float:
    """Return the rate of a run on a GPU; NaN for other runs, which are not judged."""
    return record.summary["rate"] if on_gpus([record]) else np.nan


METRICS = {"rate": Metric(_on_gpu, "examples a second", "larger")}
"""The metrics by which runs are compared."""


def _rate(row: pd.Series, whose: str) -> Interval:
    return Interval(
        *(row[f"{name}_{whose}"] for name in ("rate", "rate_low", "rate_high"))
    )


def _answer(table: pd.DataFrame) -> str:
    first = tables.first_net(table)
    base = first[first["mode"] == "fp32"]["rate"].tolist()
    where = f"On {first['device'].iloc[0]} ({first['net'].iloc[0]})"
    if not base:
        parts = [f"{row['mode']} {row['rate']:,.0f}" for _, row in first.iterrows()]
        return f"{where}, examples a second: {', '.join(parts)}."
    others = first[first["mode"] != "fp32"]
    parts = [f"{row['mode']} {row['speedup']:.2f}" for _, row in others.iterrows()]
    faster = f"; times as many: {', '.join(parts)}" if parts else ""
    return f"{where} float32 trains {base[0]:,.0f} examples a second{faster}."


def _small_print() -> list[str]:
    return [
        "A step is forward, backward and update of a stack of square layers with ReLU, "
        "SGD with momentum, the same batch every time; data loading is left out.",
        *(f"{mode}: {what}." for mode, what in MODES.items()),
        "float32 is PyTorch's default: matrix products without TF32.",
        "OpenSeq2Seq claims 1.5 to 3 times less training time for its models on its "
        "GPUs; this is a net of matrix products alone, so an upper end.",
        "Medians over seeds of the median over rounds, intervals bootstrapped (95%).",
    ]
