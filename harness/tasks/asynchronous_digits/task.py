"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.records.record import Outcome
from harness.simulator import (
    AGN,
    EASGD,
    Downpour,
    DynSGD,
    Method,
    Rule,
    Run,
    Synchronous,
    Timing,
    Weights,
    simulate,
)
from harness.simulator.gathering import DELTA, GRADIENT
from harness.tasks import backends
from harness.tasks.asynchronous_digits.numpy_model import Problem
from harness.tasks.settings import require, require_counts, require_number
from lockstep.errors import unknown_name

METHODS = (
    "agn-delta",
    "agn-gradient",
    "downpour",
    "dynsgd",
    "easgd",
    "synchronous",
)

SNAPSHOTS = 50
"""The most measurements of the center, at equal distances in minibatches."""


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        method: one of ``METHODS``.
        workers: n, the number of workers.
        period: local steps between two exchanges of a worker; a synchronous run
            exchanges after every step.
        learning_rate: Adam's learning rate, in every worker and at the center if the
            method has a rule there.
        minibatches: the total of local steps of all workers.
        batch: images per minibatch.
        hidden: the width of the hidden layer.
        latency: the duration of a message, in local steps.
    """

    method: str
    workers: int
    period: int
    learning_rate: float
    minibatches: int
    batch: int
    hidden: int
    latency: float

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise unknown_name("method", self.method, METHODS)
        require_counts(self, "workers", "period", "minibatches", "batch", "hidden")
        require_number(self, "learning_rate", "latency")
        exchanges = self.minibatches // (self.workers * self.period)
        expected = "at least one exchange of every worker"
        got = f"{self.minibatches} minibatches for {self.workers} workers"
        require(exchanges > 0, "period", expected, f"{self.period} with {got}")

    @property
    def interval(self) -> int:
        """Local steps between two measurements of the center."""
        return max(1, self.minibatches // SNAPSHOTS)


LAST = 5
"""The number of last measurements whose mean is the final accuracy."""

TARGET = 0.9
"""The accuracy of the time to target."""


def prepare(backend: str, device: str) -> None:
    """Raise unless the device is the CPU, because the task is in NumPy."""
    backends.require_cpu(backend, device)


def make_method(settings: Settings) -> Method:
    """Return the method of a run, with Adam as its rule.

    DOWNPOUR and DynSGD send the changes of the weights, as in the papers that compare
    them with AGN. ``alpha`` of EASGD is 0.9 / n, as its paper recommends.
    """
    rule = Rule("Adam", learning_rate=settings.learning_rate)
    period = settings.period
    if settings.method == "synchronous":
        return Synchronous(rule)
    if settings.method == "easgd":
        return EASGD(rule, period, 0.9 / settings.workers)
    if settings.method == "downpour":
        return Downpour(rule, period, DELTA)
    if settings.method == "dynsgd":
        return DynSGD(rule, period, DELTA)
    commit = DELTA if settings.method == "agn-delta" else GRADIENT
    return AGN(rule, period, commit)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if the center's weights are not finite.

    Series, one entry per measurement: ``minibatches`` so far, simulated ``seconds`` (1
    is the mean duration of a local step) and ``accuracy`` on held-out images. Summary:
    ``accuracy``, the mean of the last five; ``mean_accuracy`` over the simulated time;
    ``seconds``, the total, and ``to_target``, until an accuracy of 90% (infinite if it
    was not reached); ``staleness``, the mean over all pushes; ``megabytes`` sent.
    """
    settings = Settings(**config)
    problem = Problem(settings, seed)
    center = Center(problem, settings.interval)
    timing = Timing(latency_seconds=settings.latency)
    run = simulate(
        make_method(settings),
        problem.start,
        center.gradients,
        settings.workers,
        settings.minibatches,
        timing,
        seed,
        center.measure,
    )
    series = center.series(run)
    if not all(np.isfinite(value).all() for value in run.weights.values()):
        return Outcome("diverged", "the center's weights were not finite", series)
    return Outcome("ok", "", series, _summary(series, run))


class Center:
    """Measures the center's weights at equal distances, counted in minibatches."""

    def __init__(self, problem: Problem, interval: int) -> None:
        self.problem, self.interval = problem, interval
        self.minibatches = self.next = 0

    def gradients(
        self, weights: Weights, worker: int, stream: np.random.Generator
    ) -> Weights:
        """Return a worker's gradients, and count the minibatch."""
        self.minibatches += 1
        return self.problem.gradients(weights, stream)

    def measure(self, weights: Weights) -> tuple[int, float] | None:
        """Return (minibatches, accuracy) if it is time for a measurement."""
        if self.minibatches < self.next:
            return None
        self.next = self.minibatches + self.interval
        return self.minibatches, self.problem.accuracy(weights)

    def series(self, run: Run) -> dict[str, list[float]]:
        """Return the measurements; the last one has the final weights."""
        rows = [(seconds, *seen) for seconds, seen in run.trace if seen is not None]
        rows.append((run.seconds, run.steps, self.problem.accuracy(run.weights)))
        seconds, minibatches, accuracy = zip(*rows, strict=True)
        return {
            "minibatches": [float(count) for count in minibatches],
            "seconds": list(seconds),
            "accuracy": list(accuracy),
        }


def _summary(series: Mapping[str, list[float]], run: Run) -> dict[str, float]:
    accuracy, seconds = series["accuracy"], series["seconds"]
    reached = [s for s, a in zip(seconds, accuracy, strict=True) if a >= TARGET]
    return {
        "accuracy": float(np.mean(accuracy[-LAST:])),
        "mean_accuracy": _mean_over_time(seconds, accuracy),
        "seconds": run.seconds,
        "to_target": reached[0] if reached else float("inf"),
        "staleness": float(np.mean([push.staleness for push in run.pushes])),
        "megabytes": run.bytes_moved / 1e6,
    }


def _mean_over_time(seconds: list[float], accuracy: list[float]) -> float:
    """Return the mean accuracy over time, with each value until the next one.

    Before the first measurement the accuracy is 0.
    """
    durations = np.diff(seconds)
    return float(np.sum(durations * accuracy[:-1]) / seconds[-1])
