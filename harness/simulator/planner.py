"""Predict the local steps per second of all workers on a network.

Asynchronous: a worker computes P = ``period`` steps, pushes the change of the model to
the center and gets the weights back. Between two exchanges it needs no other machine.
An exchange passes three stations: the center's incoming link, the center, and its
outgoing link, because a link carries both directions at the same time. Each station
serves one worker after the other. With B bytes of the model, W bytes per second, a
seconds of the center's own, steps of t seconds and a latency of l seconds one way, this
is the closed network of :mod:`harness.simulator.queueing` with

    Z = P t + 2 l,  S = (B / W, a, B / W),  steps per second = P X(N).

Synchronous, for comparison: every step ends with a ring all-reduce of 2 (N - 1)
consecutive messages of B / N bytes,

    steps per second = N / (t + 2 (N - 1) (B / (N W) + l)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.errors import HarnessError
from harness.simulator.queueing import bound, mean_values
from lockstep.errors import sentence


@dataclass(frozen=True)
class Setting:
    """A model, the time of a step, and the network.

    Attributes:
        step_seconds: t, the time of a local step, > 0.
        model_bytes: B, the size of the pushed weights, >= 0.
        bytes_per_second: W, the bandwidth of each link in each direction, > 0.
        latency_seconds: l, one way, >= 0.
        center_seconds: a, the center's own time for an exchange, >= 0.

    Raises:
        HarnessError: a number is out of its range.
    """

    step_seconds: float
    model_bytes: float
    bytes_per_second: float
    latency_seconds: float = 0.0
    center_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            positive = name in ("step_seconds", "bytes_per_second")
            if not (
                math.isfinite(value) and (value > 0 or (value == 0 and not positive))
            ):
                expected = f"a finite number {'>' if positive else '>='} 0"
                remedy = "give another value"
                raise HarnessError(sentence(name, expected, repr(value), remedy))

    # -- asynchronous --------------------------------------------------------------

    @property
    def services(self) -> tuple[float, float, float]:
        """S: seconds in the incoming link, at the center, and in the outgoing link."""
        transfer = self.model_bytes / self.bytes_per_second
        return transfer, self.center_seconds, transfer

    def think(self, period: int) -> float:
        """Return Z, the seconds of a round in which a worker uses no station."""
        if period < 1:
            remedy = "give the local steps between two exchanges"
            text = sentence("period", "an integer >= 1", repr(period), remedy)
            raise HarnessError(text)
        return period * self.step_seconds + 2 * self.latency_seconds

    def steps(self, period: int, workers: int) -> float:
        """Return the local steps per second of all workers."""
        rounds = mean_values(self.think(period), self.services, workers)[-1].throughput
        return period * rounds

    def most_steps(self, period: int, workers: int) -> float:
        """Return the upper bound of the steps per second."""
        return period * bound(self.think(period), self.services, workers)

    # -- synchronous ---------------------------------------------------------------

    def synchronous_steps(self, workers: int) -> float:
        """Return the steps per second of all workers with an all-reduce per step."""
        share = self.model_bytes / workers / self.bytes_per_second
        messages = 2 * (workers - 1)
        reduce = messages * (share + self.latency_seconds)
        return workers / (self.step_seconds + reduce)
