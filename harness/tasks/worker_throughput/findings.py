"""Compute the answer: AGN against DDP, and against the queueing model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd

from harness.judgement.finding import NO_ANSWER, Judgement, joined
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.worker_team import tables
from harness.tasks.worker_team.findings import match, of_good_runs, team_metrics
from harness.tasks.worker_throughput.law import LAW
from harness.tasks.worker_throughput.settings import PUSHERS
from harness.tasks.worker_throughput.tables import center

__all__ = ["APART", "METRICS", "judge", "match"]

APART = ("workers",)
"""The settings that distinguish runs in the tables."""

QUOTED = 10
"""The period that the answer quotes."""


def _over_adder(size: str, record: Record) -> float:
    return record.summary[f"center/{size}"] / record.summary[f"adder/{size}"]


METRICS = {
    **team_metrics(LAW),
    **{
        f"center over adder, {size}": Metric(
            of_good_runs(partial(_over_adder, size)), "ratio", "larger"
        )
        for size in ("small", "large")
    },
}
"""The metrics of a run, which are all comparisons within it."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records and state the answer."""
    good = [record for record in records if record.status == "ok"]
    if not good:
        return Judgement(f"{NO_ANSWER}.", {}, [])
    contents = {
        "steps": tables.modes(good, LAW),
        "center": center(good),
        "one worker": tables.medians(good, tables.MILLISECONDS),
        "staleness": tables.staleness(good),
    }
    return Judgement(_answer(contents["steps"]), contents, _small_print(contents))


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
        f"On one machine, {every} {over_ddp[QUOTED]:.1f} times as many steps per "
        f"second as DDP if each exchanges after every {QUOTED}th step, and "
        f"{over_ddp[1]:.1f} times as many if after every step. They take {low:.2f} to "
        f"{high:.2f} times what the queueing model expects from the times of "
        "one worker."
    )


def _of_center(table: pd.DataFrame) -> str:
    """Quote the pushes of the center, relative to an actor that only adds."""
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
        "Medians over repeated runs, intervals bootstrapped (95%). Ratios are made "
        "within a run.",
    ]
    if sent.isna().any():
        lines.append("This system does not count the bytes of its loopback.")
    return lines
