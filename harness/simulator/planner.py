"""Predict the local steps per second of all workers on a planned network.

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
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from harness.errors import HarnessError
from harness.simulator.queueing import Flow, bound, knee, mean_values
from lockstep.messages.errors import sentence

__all__ = ["GAIN", "PERIODS", "Setting", "describe_band"]

PERIODS = (1, 10, 40)
"""Local steps between exchanges, one plan for each."""

GAIN = 2.0
"""The required steps per second, relative to synchronous training."""

SLOWEST, DECADES = 1e3, 10
"""The search range of bandwidths: from 8 kbit/s to 80 Tbit/s."""

HALVINGS = 40


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

    def flows(self, period: int, workers: int) -> list[Flow]:
        """Return the flows of 1, 2, ..., ``workers`` by mean value analysis."""
        return mean_values(self.think(period), self.services, workers)

    def steps(self, period: int, workers: int) -> float:
        """Return the local steps per second of all workers."""
        return period * self.flows(period, workers)[-1].throughput

    def most_steps(self, period: int, workers: int) -> float:
        """Return the upper bound of the steps per second."""
        return period * bound(self.think(period), self.services, workers)

    def knee(self, period: int) -> float:
        """Return N*, the number of workers that saturates the center or its link."""
        return knee(self.think(period), self.services)

    @staticmethod
    def staleness(workers: int) -> int:
        """Return N - 1, the mean staleness of a push.

        Between two pushes of a worker each other worker pushes once, on average.
        """
        return workers - 1

    # -- synchronous ---------------------------------------------------------------

    def synchronous_steps(self, workers: int) -> float:
        """Return the steps per second of all workers with an all-reduce per step."""
        share = self.model_bytes / workers / self.bytes_per_second
        messages = 2 * (workers - 1)
        reduce = messages * (share + self.latency_seconds)
        return workers / (self.step_seconds + reduce)

    def gain(self, period: int, workers: int) -> float:
        """Return the ratio of asynchronous to synchronous steps per second."""
        return self.steps(period, workers) / self.synchronous_steps(workers)

    def bandwidths_of_gain(
        self, gain: float, period: int, workers: int
    ) -> tuple[float, float] | None:
        """Return the range of bytes per second where the gain is at least ``gain``.

        The range ends at fast networks, because there no worker waits for messages. It
        may begin above 0, because many workers saturate the center's link on a slow
        network. A missing end is 0 or infinity. None if no network has this gain.
        """

        def reached(bandwidth: float) -> bool:
            there = replace(self, bytes_per_second=bandwidth)
            return there.gain(period, workers) >= gain

        tried = [SLOWEST * 10 ** (k / 4) for k in range(4 * DECADES + 1)]
        inside = [k for k, bandwidth in enumerate(tried) if reached(bandwidth)]
        if not inside:
            return None
        low, high = 0.0, math.inf
        if inside[-1] + 1 < len(tried):
            high = _edge(reached, tried[inside[-1]], tried[inside[-1] + 1])
        if inside[0]:
            low = _edge(reached, tried[inside[0]], tried[inside[0] - 1])
        return low, high

    def row(self, period: int, workers: int) -> dict[str, Any]:
        """Return the row of a plan for a period and a number of workers."""
        flow = self.flows(period, workers)[-1]
        return {
            "workers": workers,
            "period": period,
            "steps_per_second": period * flow.throughput,
            "synchronous_steps_per_second": self.synchronous_steps(workers),
            "gain": self.gain(period, workers),
            "utilization": flow.utilization,
            "waiting_seconds": flow.waiting,
            "staleness": self.staleness(workers),
            "knee": self.knee(period),
        }


def describe_band(ends: tuple[float, float] | None) -> str:
    """Return a range of bandwidths (bytes per second) as text."""
    if ends is None:
        return "on no network"
    low, high = map(_bits, ends)
    if math.isinf(ends[1]):
        return f"from {low} on" if ends[0] else "on every network"
    return f"from {low} to {high}" if ends[0] else f"up to {high}"


def _bits(bandwidth: float) -> str:
    bits = 8 * bandwidth
    return f"{bits / 1e6:.2g} Mbit/s" if bits < 1e8 else f"{bits / 1e9:.2g} Gbit/s"


def _edge(holds: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return the edge between ``inside``, where ``holds`` is true, and ``outside``."""
    for _ in range(HALVINGS):
        middle = math.sqrt(inside * outside)
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside
