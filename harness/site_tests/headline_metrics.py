"""Definitions of each predicted metric, read from a record as JSON.

They are independent of the ``METRICS`` of ``harness/tasks``, which pages are written
from, and use nothing of them. ``docs/records.md`` describes records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

Record = Mapping[str, Any]
Reader = Callable[[Record], float]


def at_the_end(name: str) -> Reader:
    """Return a reader of the last value of a series."""
    return lambda record: record["series"][name][-1]


def summed(name: str) -> Reader:
    """Return a reader of a value of the summary; NaN if it is missing."""
    return lambda record: record["summary"].get(name, np.nan)


def quotient(above: str, below: str) -> Reader:
    """Return a reader of the quotient of two values of the summary."""
    one, other = summed(above), summed(below)
    return lambda record: one(record) / other(record)


# -- tasks that may be absent ----------------------------------------------------------


def movement(record: Record, head: str = "") -> float:
    """Return the path of a head per step with its task, in the second half.

    Without a name, return the path of all heads over the sum of their steps.
    """
    series, end = record["series"], record["config"]["checkpoints"]
    path, steps = (
        sum(v[end] - v[end // 2] for k, v in series.items() if k.startswith(kind))
        for kind in (f"path/{head}", f"informative/{head}")
    )
    return path / steps if steps else np.nan


def relative_movement(head: str = "") -> Reader:
    """Return a reader of the movement in units of the run's learning rate."""
    return lambda record: (
        movement(record, head) / record["config"]["optimizer"]["learning_rate"]
    )


def losses(record: Record) -> list[float]:
    """Return the loss of each task at the end of training, before absences."""
    series, end = record["series"], record["config"]["checkpoints"]
    return [v[end] for k, v in series.items() if k.startswith("loss/")]


def documentary_error(record: Record) -> float:
    """Return the root mean squared error of documentaries, in stars."""
    return float(np.sqrt(record["series"]["loss/Documentary"][-1]))


# -- rates that train ------------------------------------------------------------------


BAR = 0.9 - 1e-6
"""The accuracy of a good rate. A float32 share may lie a rounding below it."""


def stable_rates(record: Record) -> pd.Series:
    """Return the rates around the best one that reach the bar; none if it does not."""
    sweep = pd.DataFrame(
        {name: record["series"][name] for name in ("rate", "accuracy")}
    )
    best = sweep["accuracy"].idxmax()
    good = sweep["accuracy"] >= BAR
    stretch = good.ne(good.shift()).cumsum()
    return sweep["rate"][good & (stretch == stretch[best])]


# -- workers that queue at a center ----------------------------------------------------


def throughput(think: float, services: Sequence[float], workers: int) -> float:
    """Return rounds per second by Buzen's convolution, G(n - 1) / G(n).

    For a think time alone, G(n) = Z^n / n!. Each station adds S G(n - 1), with the new
    G(n - 1).
    """
    numbers = [think**n / math.factorial(n) for n in range(workers + 1)]
    for service in services:
        for n in range(1, workers + 1):
            numbers[n] += service * numbers[n - 1]
    return numbers[-2] / numbers[-1]


def over_expected(period: int) -> Reader:
    """Return a reader of steps per second, relative to a queue with one station."""

    def read(record: Record) -> float:
        summary, workers = record["summary"], record["config"]["workers"]
        step, exchange, service = (
            summary[f"seconds/{name}"] for name in ("step", "exchange", "center")
        )
        think = period * step + max(0.0, exchange - service)
        rounds = throughput(think, [service], workers)
        return summary[f"steps/{period}"] / (period * rounds)

    return read


def over_planned(period: int) -> Reader:
    """Return a reader of steps per second, relative to a center with its two links."""

    def read(record: Record) -> float:
        summary, config = record["summary"], record["config"]
        model = 4 * round(config["model_mb"] * 1e6 / 4)
        transfer = model / summary["link/bandwidth"]
        think = period * summary["seconds/step"] + 2 * summary["link/latency"]
        services = [transfer, summary["seconds/center"], transfer]
        rounds = throughput(think, services, config["workers"])
        return summary[f"steps/{period}"] / (period * rounds)

    return read


# -- all of them -----------------------------------------------------------------------

LARGER, SMALLER, LEFT_OUT = 0.0, np.inf, np.nan
"""The value of a run that diverged: the worst one if larger or if smaller is better, or
NaN, which leaves out its seed."""

METRICS: Mapping[tuple[str, str], tuple[Reader, float]] = {
    ("asynchronous_digits", "accuracy"): (summed("accuracy"), LARGER),
    ("asynchronous_digits", "mean accuracy"): (summed("mean_accuracy"), LARGER),
    ("deep_digits", "loss"): (at_the_end("loss"), SMALLER),
    ("link_prediction", "mrr"): (at_the_end("mrr"), LARGER),
    ("link_prediction", "validation mrr"): (at_the_end("mrr/validation"), LARGER),
    ("mixed_precision_text", "bits"): (at_the_end("bits"), SMALLER),
    ("movie_genres", "error"): (lambda r: float(np.mean(np.sqrt(losses(r)))), SMALLER),
    ("movie_genres", "documentary error"): (documentary_error, SMALLER),
    ("movie_genres", "documentary movement"): (
        relative_movement("Documentary"),
        SMALLER,
    ),
    ("multitask_digits", "head movement"): (movement, SMALLER),
    ("multitask_digits", "loss"): (lambda r: float(np.mean(losses(r))), SMALLER),
    ("recommender", "lookup time"): (
        quotient("seconds/lookup/lookup", "seconds/lookup/clip"),
        LEFT_OUT,
    ),
    ("recommender", "ndcg"): (at_the_end("ndcg"), LARGER),
    ("recommender", "rows above the limit"): (at_the_end("above"), SMALLER),
    ("recommender", "step time"): (
        quotient("seconds/step/clip", "seconds/step/lookup"),
        LEFT_OUT,
    ),
    ("slow_link", "steps over DDP, period 10"): (
        quotient("steps/10", "steps/ddp"),
        LEFT_OUT,
    ),
    ("slow_link", "steps over expected, period 10"): (over_planned(10), LEFT_OUT),
    ("stable_rates", "best accuracy"): (lambda r: max(r["series"]["accuracy"]), LARGER),
    ("stable_rates", "highest rate"): (
        lambda r: stable_rates(r).max() if len(stable_rates(r)) else 0.0,
        LARGER,
    ),
    ("stable_rates", "stable range"): (
        lambda r: stable_rates(r).max() / stable_rates(r).min(),
        LARGER,
    ),
    ("gpu_steps", "time"): (summed("time"), LEFT_OUT),
    ("throughput", "rate"): (summed("rate"), LEFT_OUT),
    ("training_throughput", "ratio"): (quotient("rate/wrapped", "rate/bare"), LARGER),
    ("warm_up", "bits a byte"): (summed("bits"), SMALLER),
    ("warm_up", "state"): (quotient("state", "weights"), LEFT_OUT),
    ("worker_throughput", "steps over DDP, period 10"): (
        quotient("steps/10", "steps/ddp"),
        LEFT_OUT,
    ),
    ("worker_throughput", "steps over expected, period 1"): (
        over_expected(1),
        LEFT_OUT,
    ),
    ("worker_throughput", "steps over expected, period 10"): (
        over_expected(10),
        LEFT_OUT,
    ),
}
"""(Task, name) -> the reader, and the value of a run that diverged."""


def read(record: Record, metric: str) -> float:
    """Return the value of a metric of a run."""
    reader, of_diverged = METRICS[record["task"], metric]
    return float(reader(record)) if record["status"] == "ok" else of_diverged


def cost(record: Record, metric: str) -> float:
    """Return the cost of a run, infinite if it diverged or lacks the metric."""
    _, of_diverged = METRICS[record["task"], metric]
    if record["status"] != "ok":
        return np.inf
    value = read(record, metric)
    return np.inf if np.isnan(value) else -value if of_diverged == LARGER else value
