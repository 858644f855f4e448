"""One run: time a bare and a wrapped training step in turns, in one process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.training_throughput.data import make_plan
from harness.tasks.training_throughput.settings import Settings
from harness.timing import AGAIN, Rounds, Step, build_steps, low_quantile

__all__ = ["CONTROL", "VARIANTS", "Trainer", "prepare", "train"]

CONTROL = f"bare{AGAIN}"
"""A second bare step, whose difference from the first is noise."""

VARIANTS = ("bare", "wrapped", CONTROL)


class Trainer(Protocol):
    """The net and optimizer on one backend."""

    def step(self) -> None:
        """Take a whole step: forward, backward and update; return when finished."""
        ...

    def loss(self) -> float:
        """Return the loss in nats of the batch."""
        ...


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a loss after it is not finite.

    Summary: ``rate/VARIANT``, examples per second by the tenth percentile of the times
    of the rounds, and ``loss/VARIANT`` at the end. Nothing is timed in fp16 on a CPU,
    where float16 products are not optimized.
    """
    settings = Settings(**config)
    if settings.precision == "fp16" and device == "cpu":
        return Outcome("ok", "float16 is not timed on a CPU")
    module = backends.model(__package__, backend)
    plan = make_plan(settings, seed)
    trainers: list[tuple[str, Trainer]] = []

    def made(name: str) -> Step:
        trainer = module.Trainer(settings, plan, device, name == "wrapped")
        trainers.append((name, trainer))
        step: Step = trainer.step
        return step

    makers = {name: partial(made, name) for name in ("bare", "wrapped")}
    build = partial(build_steps, makers, VARIANTS)
    rounds = Rounds(build, between_builds=settings.rounds, seed=seed)
    for _ in range(settings.rounds):
        rounds()
    losses = {f"loss/{name}": trainer.loss() for name, trainer in trainers}
    if not np.isfinite(list(losses.values())).all():
        return Outcome("diverged", "a loss was not finite at the end", {})
    rates = {
        f"rate/{name}": settings.batch / low_quantile(seconds)
        for name, seconds in rounds.seconds.items()
    }
    return Outcome("ok", "", {}, {**rates, **losses})
