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


def throughput(think: float, services: Sequence[float], customers: int) -> float:
    """Return X, the rounds per second of all customers.

    Args:
        think: Z, seconds between two rounds, >= 0.
        services: S, seconds at each station, >= 0.
        customers: N >= 1.
    """
    queues, rounds = [0.0] * len(services), 0.0
    for n in range(1, customers + 1):
        visits = [s * (1 + q) for s, q in zip(services, queues, strict=True)]
        rounds = n / (think + sum(visits))
        queues = [rounds * visit for visit in visits]
    return rounds


def bound(think: float, services: Sequence[float], customers: int) -> float:
    """Return the bound of the throughput: min(N / (Z + sum S), 1 / max S)."""
    free = customers / (think + sum(services))
    return min(free, 1 / max(services)) if max(services) else free
