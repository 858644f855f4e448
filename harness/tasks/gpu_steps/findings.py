"""Compute the answer: what the wrappers cost on a GPU, with and without a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.judgement.finding import Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Interval, overlap
from harness.tasks.cells import on_gpus
from harness.tasks.gpu_steps import tables
from harness.tasks.gpu_steps.settings import GRAPH, STACKS, WAYS
from harness.tasks.overhead.shapes import shapes_of

__all__ = ["APART", "METRICS", "judge", "match"]

APART = ("stack", "way")
"""The settings that distinguish runs in the tables."""

SLACK = 0.2
"""The largest distance of intervals of times, because processors and GPUs differ."""

NOTHING = "Not measured yet on a GPU; runs on a CPU are not counted."


def judge(records: Sequence[Record]) -> Judgement:
    """Make a table of the runs on GPUs and state the answer, or that there are none."""
    if not on_gpus(records):
        return Judgement(NOTHING, {}, _small_print(records))
    table = tables.steps(records)
    return Judgement(_answer(table), {"steps": table}, _small_print(records))


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare times on the same kind of device; the table may be empty."""
    keys = ["stack", "way", "device"]
    empty = pd.DataFrame(columns=[*keys, *TIME])
    both = published.get("steps", empty).merge(
        own.get("steps", empty), on=keys, suffixes=("_published", "_own")
    )
    agree = [
        overlap(_time(row, "_published"), _time(row, "_own"), SLACK)
        for _, row in both.iterrows()
    ]
    return both.assign(matches=pd.Series(agree, index=both.index, dtype=bool))


TIME = ("time", "time_low", "time_high")


def _time(row: pd.Series, whose: str) -> Interval:
    return Interval(*(row[f"{name}{whose}"] for name in TIME))


def _on_gpu(name: str) -> Callable[[Record], float]:
    """Return a reader of a number of a run; NaN for runs that are not on a GPU."""
    return lambda record: record.summary[name] if on_gpus([record]) else np.nan


METRICS = {
    "time": Metric(_on_gpu("time"), "microseconds a step", "smaller"),
    "waits": Metric(_on_gpu("waits"), "waits a step", "smaller"),
    "launches": Metric(_on_gpu("launches"), "launches a step", "smaller"),
}
"""The metrics by which runs are compared."""


def _answer(table: pd.DataFrame) -> str:
    device = table["device"].iloc[0]
    rows = {(r["stack"], r["way"]): r for _, r in table.iterrows()}
    parts = [
        f"{what} {rows[key]['time']:,.0f} us ({tables.waits(rows[key]['waits'])})"
        for key, what in (
            (("bare", "host"), "a bare step takes"),
            (("all", "host"), "one with all wrappers"),
            (("all", GRAPH), "the same in a CUDA graph"),
        )
        if key in rows
    ]
    return f"On {device}, {', '.join(parts)}." if parts else NOTHING


def _small_print(records: Sequence[Record]) -> list[str]:
    config = records[0].config
    count, zeros = len(shapes_of(config["model"])), config["zeros"]
    return [
        f"A step copies the {count} gradients of the model {config['model']}, {zeros} "
        "of them all zero, scales a loss where there is a scale, and updates; forward "
        "and backward are left out.",
        *(f"{name}: {what}." for name, what in STACKS.items()),
        *(f"{name}: {what}." for name, what in WAYS.items()),
        "A wait is an operation of which PyTorch reports that the host waits for the "
        "GPU. A launch is a call that gives work to the GPU; a graph is one.",
        "Times are of many steps in a row, until the GPU has finished the last one. "
        "Medians over seeds of the median over rounds, intervals bootstrapped (95%).",
    ]
