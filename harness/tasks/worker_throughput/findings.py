"""The answer, computed: what AGN saves beside DDP, and whether the planner is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from harness.judgement.finding import NO_ANSWER, Judgement, joined
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Interval, overlap
from harness.tasks.worker_throughput import tables
from harness.tasks.worker_throughput.law import expected_steps
from harness.tasks.worker_throughput.settings import PERIODS, PUSHERS

__all__ = ["APART", "METRICS", "judge", "match"]

APART = ("workers",)
"""The settings by which the tables tell runs apart."""

QUOTED = 10
"""The period of which the answer speaks."""

SLACK = 0.2
"""How far intervals of ratios may miss each other: machines differ."""


def _of_good_runs(read: Callable[[Record], float]) -> Callable[[Record], float]:
    """Return a reader that leaves out what did not end well."""
    return lambda record: read(record) if record.status == "ok" else np.nan


def _over_ddp(period: int, record: Record) -> float:
    return record.summary[f"steps/{period}"] / record.summary["steps/ddp"]


def _over_expected(period: int, record: Record) -> float:
    expected = expected_steps(record.summary, period, record.config["workers"])
    return record.summary[f"steps/{period}"] / expected


def _over_adder(size: str, record: Record) -> float:
    return record.summary[f"center/{size}"] / record.summary[f"adder/{size}"]


def _bytes(period: int, record: Record) -> float:
    return tables.bytes_over_ddp(record, period)


def _metrics(
    name: str,
    read: Callable[[int, Record], float],
    better: Literal["smaller", "larger"],
) -> Iterator[tuple[str, Metric]]:
    """Yield a metric for each period."""
    for period in PERIODS:
        of_period = _of_good_runs(partial(read, period))
        yield f"{name}, period {period}", Metric(of_period, "ratio", better)


METRICS = {
    **dict(_metrics("steps over DDP", _over_ddp, "larger")),
    **dict(_metrics("steps over expected", _over_expected, "larger")),
    **dict(_metrics("round over DDP's step in bytes", _bytes, "smaller")),
    **{
        f"center over adder, {size}": Metric(
            _of_good_runs(partial(_over_adder, size)), "ratio", "larger"
        )
        for size in ("small", "large")
    },
}
"""The numbers of a run: all are comparisons that are made within it."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records and state the answer."""
    good = [record for record in records if record.status == "ok"]
    if not good:
        return Judgement(f"{NO_ANSWER}.", {}, [])
    contents = {
        "steps": tables.modes(good),
        "center": tables.center(good),
        "one worker": tables.one_worker(good),
        "staleness": tables.staleness(good),
    }
    return Judgement(_answer(contents["steps"]), contents, _small_print(contents))


RATIO = ("over_ddp", "over_ddp_low", "over_ddp_high")


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare ratios to DDP, also of another machine: steps themselves would differ."""
    keys = ["workers", "mode"]
    columns = [*keys, *RATIO]
    both = published["steps"][columns].merge(
        own["steps"][columns], on=keys, suffixes=("_published", "_own")
    )
    both = both.dropna()
    agree = [
        overlap(_interval(row, "_published"), _interval(row, "_own"), SLACK)
        for _, row in both.iterrows()
    ]
    return both.assign(matches=pd.Series(agree, index=both.index, dtype=bool))


def _interval(row: pd.Series, whose: str) -> Interval:
    return Interval(*(np.asarray(row[f"{name}{whose}"]) for name in RATIO))


def _answer(steps: pd.DataFrame) -> str:
    asynchronous = steps[steps["mode"] != tables.DDP]
    workers = int(asynchronous["workers"].max())
    over_ddp = asynchronous[asynchronous["workers"] == workers].set_index("period")[
        "over_ddp"
    ]
    low, high = (
        float(asynchronous["over_expected"].agg(end)) for end in ("min", "max")
    )
    every = f"{workers} workers take" if workers > 1 else "one worker takes"
    return (
        f"On one machine, {every} {over_ddp[QUOTED]:.1f} times the steps a second of "
        f"DDP if each exchanges after every {QUOTED}th step, and {over_ddp[1]:.1f} "
        f"times if after every step. Measured steps a second are {low:.2f} to "
        f"{high:.2f} times what the planner expects from the times of one worker."
    )


def _of_center(table: pd.DataFrame) -> str:
    """Quote how many pushes the center takes beside an actor that only adds."""
    parts = [
        f"{row['center']:.3g} a second at {row['model_mb']:g} MB, {row['ratio']:.2f} "
        f"[{row['ratio_low']:.2f}, {row['ratio_high']:.2f}] times"
        for row in table.to_dict("records")
    ]
    return (
        f"{PUSHERS} workers that push without a pause: the center takes "
        f"{joined(parts)} the pushes of an actor that only adds, and that checks and "
        "counts nothing."
    )


def _small_print(contents: Mapping[str, pd.DataFrame]) -> list[str]:
    steps = contents["steps"]
    sent = steps.set_index(["workers", "mode"])["bytes_per_step"]
    lines = [
        "A step waits, as for an accelerator that computes beside the CPU, and hands "
        "over the same gradient each time; workers that compute would measure the "
        "cores of the machine. All processes are on one machine and its loopback: "
        "there is no network to wait for, but all of them share its cores.",
        "A worker of AGN sends its model once a round and gets the weights back; a "
        "rank of DDP sends 2 (N - 1) / N models at each step, with N ranks, and gets "
        "as many. So the ratio of their bytes is 1 / period with two workers, and less "
        "with more.",
        "The expectation is a closed queue by mean value analysis: a worker alone was "
        "timed without an exchange and with one at every step, and the CPU time of the "
        "center's process was read.",
        "The queue knows stations, and no cores. Where the processes need more of them "
        "than there are, as with eight workers on two cores, they take fewer steps.",
        _of_center(contents["center"]),
        "Medians over repeated runs, intervals bootstrapped (95 %). Ratios are made "
        "within a run.",
    ]
    if sent.isna().any():
        lines.append("This system does not count the bytes of its loopback.")
    return lines
