"""How many local steps a second workers take, for a network that is not there yet.

Asynchronous: a worker computes P = ``period`` steps, pushes the change of the model to
the center and gets the weights back. Between two exchanges it needs nobody. An exchange
passes three stations, each of which serves one worker after the other: the center's
incoming link, the center, and its outgoing link, for a link carries both directions at
once. With B bytes of the model, W bytes a second, a seconds of the center's own, steps
of t seconds and a latency of l seconds one way, this is the closed network of
:mod:`harness.simulator.queueing` with

    Z = P t + 2 l,  S = (B / W, a, B / W),  steps a second = P X(N).

Synchronous, for comparison: every step ends with a ring all-reduce, whose 2 (N - 1)
messages of B / N bytes follow one another,

    steps a second = N / (t + 2 (N - 1) (B / (N W) + l)).
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
"""Local steps between exchanges, of which plans are shown."""

GAIN = 2.0
"""The steps a second, over those of synchronous training, that a period should pay."""

SLOWEST, DECADES = 1e3, 10
"""Bandwidths are looked for from 8 kbit/s on, to 80 Tbit/s."""

HALVINGS = 40


@dataclass(frozen=True)
class Setting:
    """A model, the time of a step, and the network.

    Attributes:
        step_seconds: t, of a local step, > 0.
        model_bytes: B, >= 0: of the weights that are pushed.
        bytes_per_second: W, > 0, of each machine's link, in each direction.
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
        """Return Z: seconds of a round in which a worker needs no station."""
        if period < 1:
            remedy = "give the local steps between two exchanges"
            text = sentence("period", "an integer >= 1", repr(period), remedy)
            raise HarnessError(text)
        return period * self.step_seconds + 2 * self.latency_seconds

    def flows(self, period: int, workers: int) -> list[Flow]:
        """Return the rounds of 1, 2, ..., ``workers`` by mean value analysis."""
        return mean_values(self.think(period), self.services, workers)

    def steps(self, period: int, workers: int) -> float:
        """Return the local steps a second of all workers."""
        return period * self.flows(period, workers)[-1].throughput

    def most_steps(self, period: int, workers: int) -> float:
        """Return what the steps a second cannot exceed."""
        return period * bound(self.think(period), self.services, workers)

    def knee(self, period: int) -> float:
        """Return N*, the workers from which on the center's link or time is full."""
        return knee(self.think(period), self.services)

    @staticmethod
    def staleness(workers: int) -> int:
        """Return N - 1, the mean number of rounds that a push is behind the center.

        Between two pushes of a worker each of the others pushes once, in the mean.
        """
        return workers - 1

    # -- synchronous ---------------------------------------------------------------

    def synchronous_steps(self, workers: int) -> float:
        """Return the steps a second of all workers with an all-reduce in each."""
        share = self.model_bytes / workers / self.bytes_per_second
        messages = 2 * (workers - 1)
        reduce = messages * (share + self.latency_seconds)
        return workers / (self.step_seconds + reduce)

    def gain(self, period: int, workers: int) -> float:
        """Return asynchronous steps a second over synchronous ones."""
        return self.steps(period, workers) / self.synchronous_steps(workers)

    def bandwidths_of_gain(
        self, gain: float, period: int, workers: int
    ) -> tuple[float, float] | None:
        """Return the bytes a second between which the gain is at least ``gain``.

        On a fast network nobody waits for messages, so the gain has an upper end. It
        has a lower one if workers are so many that they fill the center's link on a
        slow network. Ends are 0 and infinite where there are none; None if the gain is
        so large on no network.
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
        """Return what a plan says of a period and a number of workers."""
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
    """Return between which bandwidths something holds, in bytes a second, in words."""
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
    """Return where a claim that holds inside stops to hold on the way outside."""
    for _ in range(HALVINGS):
        middle = math.sqrt(inside * outside)
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside
