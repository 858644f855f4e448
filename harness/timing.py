"""Reliable timing on a shared machine: interleaved rounds, low quantiles.

Every round runs each variant in a new random order, inside one process with one thread.
So a slow moment of the machine affects all variants alike. A low quantile of each
variant is compared, because noise of the machine only ever adds time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

LOW = 0.1
"""The quantile that is reported as a variant's time."""

WARM_UP = 3
"""Number of first steps of a new variant that are not timed."""

LONG = 0.5
"""Seconds after which a variant is warm, even after fewer than ``WARM_UP`` steps."""

BURST, LONGEST_BURST = 2e-3, 50
"""Short steps are timed several times per round, for about 2 ms, at most 50 times.

All variants of a setup are repeated equally often: the first step has a cold cache.
"""

AGAIN = " again"
"""Suffix for the name of a variant that is built a second time, as a control."""


Step: TypeAlias = Callable[[], None]
"""One step. It returns when the work is done."""

Steps: TypeAlias = Mapping[str, Step]
"""Name of a variant -> one step of it."""

Makers: TypeAlias = Mapping[str, Callable[[], Step]]
"""Name of a variant -> function that builds its step, with its own state."""


@dataclass(frozen=True)
class Prepared:
    """A step with a preparation that is not timed.

    Attributes:
        prepare: called before each step.
        step: the function that is timed.
        count: number of steps of the subject in one call of ``step``.
    """

    prepare: Step
    step: Step
    count: int = 1

    def __call__(self) -> None:
        """Run the step without the preparation."""
        self.step()


def build_steps(makers: Makers, names: Collection[str], seed: int) -> dict[str, Step]:
    """Build the named variants in an order determined by the seed."""
    order = random.Random(seed).sample(sorted(names), len(names))
    return {name: makers[name.removesuffix(AGAIN)]() for name in order}


class Rounds:
    """Times several variants of a step against each other.

    Args:
        build: builds the variants. Its argument is a seed for the order in which to
            build them. It is called again from time to time, because the position of
            tensors in memory favours one variant or another by several per cent.
        between_builds: number of rounds for which each build is timed.
        seed: for the orders in which variants are built and run.

    Attributes:
        seconds: name -> the time of one step in each round so far, in seconds.
    """

    def __init__(
        self, build: Callable[[int], Steps], between_builds: int, seed: int
    ) -> None:
        self.build = build
        self.between_builds = between_builds
        self.random = random.Random(seed)
        self.variants: Steps = {}
        self.burst = 1
        self.left = 0
        self.seconds: dict[str, list[float]] = {}

    def __call__(self) -> None:
        """Time every variant once, in random order."""
        self.renew_if_due()
        self.left -= 1
        for name in self.random.sample(sorted(self.variants), len(self.variants)):
            step = self.variants[name]
            mean = sum(timed(step) for _ in range(self.burst)) / self.burst
            count = step.count if isinstance(step, Prepared) else 1
            self.seconds.setdefault(name, []).append(mean / count)

    def renew_if_due(self) -> None:
        """Build the variants again and warm up each of them, if it is time to."""
        if self.left:
            return
        self.variants = {}
        self.variants = self.build(self.random.getrandbits(32))
        warm = [warm_up(step) for step in self.variants.values()]
        count = int(BURST * len(warm) / max(sum(warm), 1e-9))
        self.burst = min(max(count, 1), LONGEST_BURST)
        self.left = self.between_builds


def warm_up(step: Step) -> float:
    """Run the first steps and return the shortest time. Long steps need fewer.

    The first step may trace a graph, so its time is ignored.
    """
    timed(step)
    times = [timed(step)]
    while len(times) < WARM_UP - 1 and sum(times) < LONG:
        times.append(timed(step))
    return min(times)


def timed(step: Step) -> float:
    """Prepare a step if it asks for that, run it and return its time in seconds."""
    if isinstance(step, Prepared):
        step.prepare()
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def low_quantile(seconds: Sequence[float]) -> float:
    """Return the tenth percentile of a variant's times, in seconds."""
    return float(np.quantile(np.asarray(seconds), LOW))
