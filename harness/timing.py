"""Timing that can be trusted on a shared machine: interleaved rounds, low quantiles.

Every round runs each variant in an order drawn anew, inside one process with one
thread, so that a slow moment of the machine hits all of them alike. What is compared is
the low quantile of each, for the noise of a machine only ever adds time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

__all__ = [
    "AGAIN",
    "BURST",
    "LONGEST_BURST",
    "LOW",
    "WARM_UP",
    "Makers",
    "Prepared",
    "Rounds",
    "Step",
    "Steps",
    "build_steps",
    "low_quantile",
]

LOW = 0.1
"""The quantile that stands for a variant's time."""

WARM_UP = 3
"""How many steps of a new variant are not timed."""

LONG = 0.5
"""Seconds after which a variant is warm, whatever the number of its steps."""

BURST, LONGEST_BURST = 2e-3, 50
"""Short steps are timed several times a round, for about 2 ms, at most 50 times.

Each variant of a setup as often as the others: the first step finds a cold cache.
"""

AGAIN = " again"
"""What follows the name of a variant that is built twice, as a control."""


Step: TypeAlias = Callable[[], None]
"""One step, which returns when it is done."""

Steps: TypeAlias = Mapping[str, Step]
"""Name of a variant -> one step of it."""

Makers: TypeAlias = Mapping[str, Callable[[], Step]]
"""Name of a variant -> what builds it, with parameters and state of its own."""


@dataclass(frozen=True)
class Prepared:
    """A step with what comes before it, which is not timed.

    Attributes:
        prepare: called before each step.
        step: what is timed.
        count: how many steps of the subject one call of ``step`` takes.
    """

    prepare: Step
    step: Step
    count: int = 1

    def __call__(self) -> None:
        """Take the step."""
        self.step()


def build_steps(makers: Makers, names: Collection[str], seed: int) -> dict[str, Step]:
    """Build the named variants in an order that follows from the seed."""
    order = random.Random(seed).sample(sorted(names), len(names))
    return {name: makers[name.removesuffix(AGAIN)]() for name in order}


class Rounds:
    """Times several variants of a step against each other.

    Args:
        build: makes the variants; it is given a seed for the order in which to make
            them, and is called anew from time to time, for where tensors happen to lie
            in memory favours one variant or another by several per cent.
        between_builds: how many rounds each build is timed.
        seed: of the orders in which variants are made and run.

    Attributes:
        seconds: name -> the time of a step in each round so far, in seconds.
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
        """Run every variant, in random order."""
        if not self.left:
            self.renew()
        self.left -= 1
        for name in self.random.sample(sorted(self.variants), len(self.variants)):
            step = self.variants[name]
            mean = sum(timed(step) for _ in range(self.burst)) / self.burst
            count = step.count if isinstance(step, Prepared) else 1
            self.seconds.setdefault(name, []).append(mean / count)

    def renew(self) -> None:
        """Make the variants anew and warm each of them up."""
        self.variants = {}
        self.variants = self.build(self.random.getrandbits(32))
        warm = [warm_up(step) for step in self.variants.values()]
        count = int(BURST * len(warm) / max(sum(warm), 1e-9))
        self.burst = min(max(count, 1), LONGEST_BURST)
        self.left = self.between_builds


def warm_up(step: Step) -> float:
    """Take the first steps and return the shortest time; long ones need fewer.

    The first step may trace a graph, so its time does not count.
    """
    timed(step)
    times = [timed(step)]
    while len(times) < WARM_UP - 1 and sum(times) < LONG:
        times.append(timed(step))
    return min(times)


def timed(step: Step) -> float:
    """Prepare a step if it asks for that, take it and return its time in seconds."""
    if isinstance(step, Prepared):
        step.prepare()
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def low_quantile(seconds: Sequence[float]) -> float:
    """Return the tenth percentile of a variant's times, in seconds."""
    return float(np.quantile(np.asarray(seconds), LOW))
