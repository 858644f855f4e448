"""Compute the answer: what AGN saves on slow links, and whether this was predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.judgement.finding import NO_ANSWER, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.slow_link.law import LAW, setting
from harness.tasks.worker_team import tables
from harness.tasks.worker_team.findings import match, of_good_runs, team_metrics
from harness.tasks.worker_team.settings import PERIODS

__all__ = ["APART", "METRICS", "judge", "match"]

APART = ("workers",)
"""The settings that distinguish runs in the tables."""

LONGER = PERIODS[1:]
"""The periods that save exchanges."""

ONE_WORKER = {
    **tables.MILLISECONDS,
    "link_mbit": ("link/bandwidth", 8e-6),
    "latency_ms": ("link/latency", 1e3),
}


def _reduced_over_expected(record: Record) -> float:
    assert LAW.reduced is not None
    return record.summary["steps/ddp"] / LAW.reduced(record)


METRICS = {
    **team_metrics(LAW),
    "DDP over expected": Metric(
        of_good_runs(_reduced_over_expected), "ratio", "larger"
    ),
}
"""The metrics of a run, which are all comparisons within it."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records and state the answer."""
    good = [record for record in records if record.status == "ok"]
    if not good:
        return Judgement(f"{NO_ANSWER}.", {}, [])
    contents = {
        "steps": tables.modes(good, LAW),
        "one worker": tables.medians(good, ONE_WORKER),
        "staleness": tables.staleness(good),
    }
    small_print = [*_small_print(contents["steps"]), _of_one_exchange(good)]
    return Judgement(_answer(contents), contents, small_print)


def _answer(contents: Mapping[str, pd.DataFrame]) -> str:
    steps = contents["steps"]
    workers = int(steps["workers"].max())
    mbit = float(contents["one worker"]["link_mbit"].median())
    of_most = steps[steps["workers"] == workers].set_index("mode")["over_ddp"]
    every, *gains = (of_most[f"period {period}"] for period in (1, *LONGER))
    shown = " and ".join(f"{gain:.1f}" for gain in gains)
    steps_named = " and ".join(f"{period}th" for period in LONGER)
    over = steps["over_expected"]
    who = f"{workers} workers take" if workers > 1 else "one worker takes"
    return (
        f"Over links that carry {mbit:.0f} Mbit/s, {who} {shown} times as many "
        f"steps per second as DDP if each exchanges after every {steps_named} step, "
        f"and {every:.1f} times as many if after every step. Workers and DDP take "
        f"{over.min():.2f} to {over.max():.2f} times what the queueing model "
        "expects."
    )


def _small_print(steps: pd.DataFrame) -> list[str]:
    return [
        "Each worker and the center has a machine of its own: a network namespace with "
        "a Ray node and a link to a bridge, which the kernel slows down in both "
        "directions (tbf). All of them share the cores of one computer.",
        "Links are slow, but not long: nothing is added to their latency, which is "
        "that of the computer.",
        "Bytes are those that the interfaces of the workers' machines have sent, with "
        "all headers and whatever Ray says beside the weights.",
        "The expectation is the queueing model's: bandwidth and latency of the "
        "link and the time of a step were measured in the same run, and the CPU time "
        "of the center's process was read.",
        f"A rank of DDP sends {_megabytes(steps, tables.DDP)} MB a step, a worker "
        f"with a period of {LONGER[0]} {_megabytes(steps, f'period {LONGER[0]}')} MB, "
        f"with {int(steps['workers'].max())} of them.",
        "Medians over repeated runs, intervals bootstrapped (95%). Ratios are made "
        "within a run.",
    ]


def _of_one_exchange(records: Sequence[Record]) -> str:
    """Return a sentence about the difference before workers wait for one another."""
    settings = [setting(record) for record in records]
    planned = [sum(s.services) + 2 * s.latency_seconds for s in settings]
    measured = [record.summary["seconds/exchange"] for record in records]
    return (
        f"An exchange of a worker that is alone takes {1e3 * np.median(measured):.0f} "
        f"ms, by the queueing model {1e3 * np.median(planned):.0f} ms."
    )


def _megabytes(steps: pd.DataFrame, mode: str) -> str:
    rows = steps[(steps["workers"] == steps["workers"].max()) & (steps["mode"] == mode)]
    return f"{rows['bytes_per_step'].iloc[0] / 1e6:.3g}"
