"""Mean value analysis: laws of every closed network, and one that is simulated."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest

from harness.simulator.run import Queue
from harness.tasks.worker_team.report import throughput

NETWORKS: list[tuple[float, tuple[float, ...]]] = [
    (1.0, (0.1,)),
    (0.5, (0.1, 0.3)),
    (5.0, (0.2, 0.0, 0.2)),
    (0.3, (0.1, 0.4, 0.1)),
]
ROUNDING = 1e-9


def bound(think: float, services: Sequence[float], customers: int) -> float:
    """Return the asymptotes: all customers think, or the slowest station is busy."""
    free = customers / (think + sum(services))
    return min(free, 1 / max(services)) if max(services) else free


@pytest.mark.parametrize(("think", "services"), NETWORKS)
def test_throughput_rises_from_that_of_one_to_the_asymptote(
    think: float, services: tuple[float, ...]
) -> None:
    rates = [throughput(think, services, n) for n in range(1, 301)]
    assert rates[0] == pytest.approx(1 / (think + sum(services)))
    assert all(a <= b * (1 + ROUNDING) for a, b in pairwise(rates))
    for n, rate in enumerate(rates, start=1):
        assert rate <= bound(think, services, n) * (1 + ROUNDING)
    assert rates[-1] == pytest.approx(1 / max(services), rel=1e-2)


Duration = Callable[[], float]


def simulated(think: Duration, services: Sequence[Duration], customers: int) -> float:
    """Return the rounds a second of a network that is simulated, customer by customer.

    The first tenth is left out, in which queues fill.
    """
    time, rounds = Queue(), 40_000
    waiting: list[deque[int]] = [deque() for _ in services]
    ends: list[float] = []

    def begin(customer: int) -> None:
        if len(ends) < rounds:
            time.after(think(), lambda: arrive(customer, 0))

    def arrive(customer: int, station: int) -> None:
        if station == len(services):
            ends.append(time.seconds)
            begin(customer)
            return
        waiting[station].append(customer)
        if len(waiting[station]) == 1:
            serve(station)

    def serve(station: int) -> None:
        time.after(services[station](), lambda: leave(station))

    def leave(station: int) -> None:
        customer = waiting[station].popleft()
        if waiting[station]:
            serve(station)
        arrive(customer, station + 1)

    for customer in range(customers):
        begin(customer)
    time.run()
    first = rounds // 10
    return (rounds - first) / (ends[rounds] - ends[first])


@pytest.mark.parametrize("customers", [2, 6, 20])
def test_a_simulation_with_exponential_services_has_the_same_throughput(
    customers: int,
) -> None:
    generator = np.random.default_rng(0)

    def exponential(mean: float) -> Duration:
        return lambda: float(generator.exponential(mean))

    seconds = (0.1, 0.15, 0.1)
    services = [exponential(mean) for mean in seconds]
    rate = simulated(lambda: 1.0, services, customers)
    expected = throughput(1.0, seconds, customers)
    # 36,000 rounds: four standard errors of their mean duration are about 1%.
    assert rate == pytest.approx(expected, rel=0.015)
