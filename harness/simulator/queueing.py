"""Exact mean value analysis of a closed queueing network with one customer class.

M. Reiser, S. Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks",
Journal of the ACM 27 (1980). In each round, each of N customers thinks for Z seconds
and then visits every station k once. A station serves one customer after the other, in
S_k seconds each. By recursion over the number of customers n,

    R_k(n) = S_k (1 + Q_k(n - 1)),  X(n) = n / (Z + sum R_k(n)),  Q_k(n) = X(n) R_k(n)

with the seconds R_k of a visit, the throughput X and the queues Q_k, which are 0 at
n = 0. The means are exact for exponential services and any distribution of Z. With
services that vary less, queues are shorter and X is higher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from harness.errors import HarnessError
from lockstep.errors import sentence


class Flow(NamedTuple):
    """The means for a number of customers.

    Attributes:
        customers: n.
        throughput: X, rounds per second of all customers.
        waiting: seconds of a round spent waiting for others, at all stations.
        queues: Q, customers at each station, including the served one.
        utilization: share of the time in which the busiest station serves.
    """

    customers: int
    throughput: float
    waiting: float
    queues: tuple[float, ...]
    utilization: float


def mean_values(think: float, services: Sequence[float], customers: int) -> list[Flow]:
    """Return the flows of 1, 2, ..., ``customers``.

    Args:
        think: Z, seconds between two rounds, >= 0.
        services: S, seconds at each station, >= 0. Not all values are 0.
        customers: N >= 1.

    Raises:
        HarnessError: an argument is out of range.
    """
    _require(think, services, customers)
    queues = [0.0] * len(services)
    flows = []
    for n in range(1, customers + 1):
        visits = [s * (1 + q) for s, q in zip(services, queues, strict=True)]
        throughput = n / (think + sum(visits))
        queues = [throughput * visit for visit in visits]
        waiting = sum(visits) - sum(services)
        busiest = throughput * max(services)
        flows.append(Flow(n, throughput, waiting, tuple(queues), busiest))
    return flows


def bound(think: float, services: Sequence[float], customers: int) -> float:
    """Return the bound of the throughput: min(N / (Z + sum S), 1 / max S)."""
    _require(think, services, customers)
    free = customers / (think + sum(services))
    return min(free, 1 / max(services)) if max(services) else free


def _require(think: float, services: Sequence[float], customers: int) -> None:
    times = (think, *services)
    if not services or min(times) < 0 or not 0 < sum(times) < float("inf"):
        expected = "finite durations >= 0, not all of them 0"
        got = f"think={think!r}, services={tuple(services)!r}"
        raise HarnessError(
            sentence("queueing network", expected, got, "give it seconds")
        )
    if customers < 1:
        remedy = "give how many customers there are"
        text = sentence("customers", "an integer >= 1", repr(customers), remedy)
        raise HarnessError(text)
