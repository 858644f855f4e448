"""Workers that train a digit classifier asynchronously, in simulated time.

Every method has the same minibatches, the same step durations and the same network.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import numpy as np

from harness.records.record import Outcome
from harness.simulator.methods import (
    AGN,
    DELTA,
    EASGD,
    GRADIENT,
    Downpour,
    DynSGD,
)
from harness.simulator.run import Run, Team
from harness.tasks import backends
from harness.tasks.asynchronous_digits.numpy_model import Problem
from harness.tasks.schema import Count, Positive, require, settings
from lockstep.reference import AdamOptimizer

SNAPSHOTS, LAST = 50, 5
"""The most measurements of the center; the mean of the last is the final accuracy."""

TARGET = 0.9
"""The accuracy of the time to target."""


@settings
class Settings:
    """The settings of one run; the unit of time is the mean duration of a local step.

    A synchronous run exchanges after every step. Adam trains every worker, and the
    center if the method has a rule there.
    """

    method: Literal[
        "agn-delta", "agn-gradient", "downpour", "dynsgd", "easgd", "synchronous"
    ]
    workers: Count
    period: Count  # local steps between two exchanges of a worker
    learning_rate: Positive
    minibatches: Count  # local steps of all workers
    batch: Count
    hidden: Count
    latency: Positive  # duration of a message

    def __post_init__(self) -> None:
        exchanges = self.minibatches // (self.workers * self.period)
        expected = "at least one exchange of every worker"
        got = f"{self.minibatches} minibatches for {self.workers} workers"
        require(exchanges > 0, "period", expected, f"{self.period} with {got}")


def prepare(backend: str, device: str) -> None:
    """Raise unless the device is the CPU, because the task is in NumPy."""
    backends.require_cpu(backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if the center's weights are not finite.

    DOWNPOUR and DynSGD send the changes of the weights, as in the papers that compare
    them with AGN. ``alpha`` of EASGD is 0.9 / n, as its paper recommends.

    Series, one entry per measurement: simulated ``seconds`` and ``accuracy`` on
    held-out images. Summary: ``accuracy``, the mean of the last five; ``mean_accuracy``
    over the simulated time; ``to_target``, the seconds until an accuracy of 90%
    (infinite if it was not reached); ``staleness``, the mean over all pushes.
    """
    of = Settings(**config)
    problem = Problem(of.hidden, of.batch, seed)
    team = Team(
        partial(AdamOptimizer, of.learning_rate),
        problem.start,
        problem.gradients,
        of.workers,
        of.minibatches,
        latency=of.latency,
        seed=seed,
        measure=problem.accuracy,
        every=max(1, of.minibatches // SNAPSHOTS),
    )
    methods = {
        "agn-delta": AGN(of.period, DELTA),
        "agn-gradient": AGN(of.period, GRADIENT),
        "downpour": Downpour(of.period, DELTA),
        "dynsgd": DynSGD(of.period, DELTA),
        "easgd": EASGD(of.period, 0.9 / of.workers),
    }
    if of.method == "synchronous":
        run = team.train_together()
    else:
        run = team.train(methods[of.method])
    seconds, accuracy = zip(*run.trace, strict=True)
    series = {"seconds": list(seconds), "accuracy": list(accuracy)}
    if not all(np.isfinite(value).all() for value in run.weights.values()):
        return Outcome("diverged", "the center's weights were not finite", series)
    return Outcome("ok", "", series, summary(series, run))


def summary(series: Mapping[str, list[float]], run: Run) -> dict[str, float]:
    """Return the numbers of a run; an accuracy holds until the next measurement."""
    accuracy, seconds = series["accuracy"], series["seconds"]
    reached = [s for s, a in zip(seconds, accuracy, strict=True) if a >= TARGET]
    area = np.sum(np.diff(seconds) * accuracy[:-1])
    return {
        "accuracy": float(np.mean(accuracy[-LAST:])),
        "mean_accuracy": float(area / seconds[-1]),
        "to_target": reached[0] if reached else float("inf"),
        "staleness": float(np.mean(run.staleness)),
    }
