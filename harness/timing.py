"""Timing that can be trusted on a shared machine: interleaved rounds, low quantiles.

Every round runs each variant once, in an order drawn anew, inside one process with one
thread, so that a slow moment of the machine hits all of them alike. What is compared is
the low quantile of each, for the noise of a machine only ever adds time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from lockstep.interface import Array

__all__ = [
    "LOW",
    "Prepared",
    "Rounds",
    "Step",
    "Steps",
    "low_quantile",
    "made",
    "ratio_interval",
]

LOW = 0.1
"""The quantile that stands for a variant's time."""

WARM_UP = 3
"""How many steps of a new variant are not timed."""


Step: TypeAlias = Callable[[], None]
"""One step, which returns when it is done."""

Steps: TypeAlias = Mapping[str, Step]
"""Name of a variant -> one step of it."""


@dataclass(frozen=True)
class Prepared:
    """A step that needs something made anew each time, outside of what is timed."""

    prepare: Step
    step: Step

    def __call__(self) -> None:
        """Take the step."""
        self.step()


def made(makers: Mapping[str, Callable[[], Step]], seed: int) -> dict[str, Step]:
    """Make the variants in an order that follows from the seed."""
    order = random.Random(seed).sample(sorted(makers), len(makers))
    return {name: makers[name]() for name in order}


class Rounds:
    """Times several variants of a step against each other.

    Args:
        build: makes the variants; it is given a seed for the order in which to make
            them, and is called anew from time to time, for where tensors happen to lie
            in memory favours one variant or another by several per cent.
        between_builds: how many rounds each build is timed.
        seed: of the orders in which variants are made and run.

    Attributes:
        seconds: name -> the time of each round so far, in seconds.
    """

    def __init__(
        self, build: Callable[[int], Steps], between_builds: int, seed: int
    ) -> None:
        self.build = build
        self.between_builds = between_builds
        self.random = random.Random(seed)
        self.variants: Steps = {}
        self.left = 0
        self.seconds: dict[str, list[float]] = {}

    def __call__(self) -> None:
        """Run every variant once, in random order."""
        if not self.left:
            self.renew()
        self.left -= 1
        for name in self.random.sample(sorted(self.variants), len(self.variants)):
            step = self.variants[name]
            _prepare(step)
            start = time.perf_counter()
            step()
            self.seconds.setdefault(name, []).append(time.perf_counter() - start)

    def renew(self) -> None:
        """Make the variants anew and warm each of them up."""
        self.variants = {}
        self.variants = self.build(self.random.getrandbits(32))
        for step in list(self.variants.values()) * WARM_UP:
            _prepare(step)
            step()
        self.left = self.between_builds


def _prepare(step: Step) -> None:
    if isinstance(step, Prepared):
        step.prepare()


def low_quantile(seconds: Sequence[float]) -> float:
    """Return the tenth percentile of a variant's times, in seconds."""
    return float(np.quantile(np.asarray(seconds), LOW))


def ratio_interval(
    ours: Sequence[float], peer: Sequence[float], draws: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """Return q(ours) / q(peer), q the low quantile, with its 95 % bootstrap interval.

    Whole rounds are drawn with replacement: what a round has in common stays together.
    """
    times: Array = np.array([ours, peer], np.float64)
    rng = np.random.default_rng(seed)
    chosen = rng.integers(times.shape[1], size=(draws, times.shape[1]))
    low = np.quantile(times[:, chosen], LOW, axis=2)
    interval = np.quantile(low[0] / low[1], [0.025, 0.975])
    point = low_quantile(ours) / low_quantile(peer)
    return point, float(interval[0]), float(interval[1])
