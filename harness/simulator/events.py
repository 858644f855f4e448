"""Simulated time: a queue of events, and the durations of steps and messages."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.errors import HarnessError
from lockstep.errors import sentence


@dataclass(frozen=True)
class Timing:
    """The durations of local steps and messages.

    A step of worker k takes ``step_seconds * slowness[k] * x`` with x from a gamma
    distribution of mean 1 and standard deviation ``spread``; a message takes
    ``latency_seconds + bytes / bytes_per_second``. Links do not share bandwidth and
    the server's own work takes no time.

    Attributes:
        step_seconds: the mean, > 0.
        spread: >= 0; 0 makes every step take the mean.
        latency_seconds: one way, >= 0.
        bytes_per_second: > 0; infinite by default.
        slowness: factors, one a worker; none means 1 for all.
    """

    step_seconds: float = 1.0
    spread: float = 0.25
    latency_seconds: float = 0.0
    bytes_per_second: float = math.inf
    slowness: Sequence[float] = ()

    def __post_init__(self) -> None:
        """Raise for values out of range."""
        positive = (self.step_seconds, self.bytes_per_second, *self.slowness)
        if min(positive) <= 0 or min(self.spread, self.latency_seconds) < 0:
            expected = "positive durations; spread and latency may be 0"
            remedy = "see its attributes"
            raise HarnessError(sentence("Timing", expected, repr(self), remedy))

    def step(self, worker: int, generator: np.random.Generator) -> float:
        """Return a random duration of a step of this worker."""
        slowness = self.slowness[worker] if self.slowness else 1.0
        mean = self.step_seconds * slowness
        if not self.spread:
            return mean
        shape = self.spread**-2
        return mean * float(generator.gamma(shape, 1 / shape))

    def message(self, size: int) -> float:
        """Return the seconds that a message of ``size`` bytes takes."""
        return self.latency_seconds + size / self.bytes_per_second


class Queue:
    """Actions, sorted by time; actions at the same time run in the order of entry."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._entered = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Add an action, to be run ``seconds`` from now."""
        heapq.heappush(self._heap, (self.seconds + seconds, self._entered, action))
        self._entered += 1

    def run(self) -> None:
        """Run all actions until the queue is empty."""
        while self._heap:
            self.seconds, _, action = heapq.heappop(self._heap)
            action()
