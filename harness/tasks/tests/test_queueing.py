"""Mean value analysis, where the throughput is known from other formulas."""

from __future__ import annotations

import math

import pytest

from harness.tasks.worker_team.report import throughput


@pytest.mark.parametrize("customers", [1, 2, 6, 20])
def test_one_station_is_the_repairman_of_that_many_machines(customers: int) -> None:
    think, service = 1.0, 0.2
    weights = [
        math.perm(customers, k) * (service / think) ** k for k in range(customers + 1)
    ]
    busy = 1 - weights[0] / sum(weights)
    expected = busy / service
    assert throughput(think, [service], customers) == pytest.approx(expected)


@pytest.mark.parametrize("customers", [1, 3, 10])
def test_equal_stations_share_the_customers(customers: int) -> None:
    expected = customers / (0.1 * (customers + 4 - 1))
    assert throughput(0.0, [0.1] * 4, customers) == pytest.approx(expected)


def test_many_customers_take_what_the_slowest_station_serves() -> None:
    assert throughput(0.5, [0.1, 0.3, 0.0], 300) == pytest.approx(1 / 0.3)
