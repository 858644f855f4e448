"""The total of regularization losses: added up as TensorFlow does, on every backend."""

from __future__ import annotations

from contextlib import closing
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest

from harness.parity import drivers
from lockstep import registry
from lockstep.messages.step.regularization import in_groups


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(0, [0]), (1, [1]), (9, [9]), (10, [2, 8]), (16, [8, 8]), (17, [9, 8])],
)
def test_two_to_nine_losses_come_first_and_then_eight_by_eight(
    count: int, sizes: list[int]
) -> None:
    groups = in_groups(range(count))
    assert [len(group) for group in groups] == sizes
    assert [each for group in groups for each in group] == list(range(count))


@pytest.mark.parametrize("backend", sorted(registry.BACKENDS))
def test_the_total_is_that_of_the_groups_to_the_bit(backend: str) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    losses = list(np.random.default_rng(7).random(20, np.float32))
    expected = reduce(add, [reduce(add, group) for group in in_groups(losses)])
    assert expected != reduce(add, losses)
    with closing(drivers.load(backend)) as driver:

        def total(values: list[Any]) -> list[Any]:
            named = {f"w{k}": value for k, value in enumerate(values)}
            kept = driver.regularization_losses(named)
            return [driver.names.get_regularization_loss(**kept)]

        (found,) = driver.compile(total)([np.asarray(loss) for loss in losses])
    assert np.asarray(found) == expected
