"""Mean value analysis: laws of every closed network, and one that is simulated."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.simulator.events import Queue
from harness.simulator.queueing import bound, mean_values

NETWORKS: list[tuple[float, tuple[float, ...]]] = [
    (1.0, (0.1,)),
    (0.5, (0.1, 0.3)),
    (5.0, (0.2, 0.0, 0.2)),
    (0.3, (0.1, 0.4, 0.1)),
]
ROUNDING = 1e-9


@pytest.mark.parametrize(("think", "services"), NETWORKS)
def test_one_customer_waits_for_nobody(
    think: float, services: tuple[float, ...]
) -> None:
    (flow,) = mean_values(think, services, 1)
    assert flow.waiting == pytest.approx(0, abs=ROUNDING)
    assert flow.throughput == pytest.approx(1 / (think + sum(services)))


@pytest.mark.parametrize(("think", "services"), NETWORKS)
def test_throughput_rises_to_the_asymptote_and_never_beyond(
    think: float, services: tuple[float, ...]
) -> None:
    flows = mean_values(think, services, 300)
    rates = [flow.throughput for flow in flows]
    assert all(a <= b * (1 + ROUNDING) for a, b in pairwise(rates))
    for flow in flows:
        most = bound(think, services, flow.customers)
        assert flow.throughput <= most * (1 + ROUNDING)
    assert rates[-1] == pytest.approx(1 / max(services), rel=1e-2)
    assert flows[-1].utilization == pytest.approx(1, rel=1e-2)


@pytest.mark.parametrize(("think", "services"), NETWORKS)
def test_littles_law_counts_every_customer_once(
    think: float, services: tuple[float, ...]
) -> None:
    for flow in mean_values(think, services, 40):
        thinking = flow.throughput * think
        assert thinking + sum(flow.queues) == pytest.approx(flow.customers)
        at_stations = flow.throughput * (flow.waiting + sum(services))
        assert at_stations == pytest.approx(sum(flow.queues))


def test_stations_that_take_no_time_change_nothing() -> None:
    alone, beside = (mean_values(1.0, s, 20)[-1] for s in ((0.2,), (0.0, 0.2, 0.0)))
    assert beside.throughput == pytest.approx(alone.throughput)
    assert bound(2.0, (0.0,), 8) == 4.0


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
    expected = mean_values(1.0, seconds, customers)[-1].throughput
    # 36,000 rounds: four standard errors of their mean duration are about 1%.
    assert rate == pytest.approx(expected, rel=0.015)


@pytest.mark.parametrize("customers", [2, 6, 20])
def test_services_that_never_vary_are_between_the_means_and_the_asymptote(
    customers: int,
) -> None:
    services = (0.1, 0.15, 0.1)
    rate = simulated(lambda: 1.0, [lambda s=s: s for s in services], customers)
    assert mean_values(1.0, services, customers)[-1].throughput <= rate
    assert rate <= bound(1.0, services, customers) * (1 + ROUNDING)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((0.0, (0.0,), 3), "not all of them 0"),
        ((-1.0, (1.0,), 3), "durations >= 0"),
        ((1.0, (float("nan"),), 3), "finite durations"),
        ((1.0, (), 3), "finite durations"),
        ((1.0, (1.0,), 0), "customers: expected an integer >= 1, got 0"),
    ],
)
def test_a_network_that_cannot_be_is_one_sentence(
    arguments: tuple[float, tuple[float, ...], int], told: str
) -> None:
    with pytest.raises(HarnessError, match=told):
        mean_values(*arguments)
