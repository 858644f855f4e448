"""Variables left out for a while, or seen late: as if their gradients were absent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from harness.parity.drivers.protocol import Driver
from harness.tests.stacks.stacks import Model, build, slot_names
from lockstep.interface import Array
from lockstep.tests.wrappers import has_masters, skips

STACKS = [
    "multitask Adam",
    "rows Adam",
    "dynamic Momentum",
    "masters-dynamic Adam",
    "dynamic multitask rows Adam",
    "masters-dynamic rows multitask Momentum",
]
TABLE, HEAD = np.array([[1.0, 2.0], [0.25, -0.5]]), np.array([1.0, -1.0])
GRADIENTS = [(1.0, 1.0), (0.5, -1.0), (-1.0, 0.5), (np.inf, 1.0), (2.0, 0.0), (1, 1)]
STEPS = range(len(GRADIENTS))


def trained(
    stack: str, driver: Driver, without: Sequence[int], left_out: bool
) -> list[Array]:
    """Train a table and a head; in some steps the head is left out, or absent.

    Args:
        stack: the wrappers.
        driver: of the backend.
        without: the steps in which the head has no gradient.
        left_out: whether it is not even named then.
    """
    dtype = "float16" if has_masters(stack) else "float32"
    values = [value.astype(dtype) for value in (TABLE, HEAD)]
    variables = [driver.variable(n, v) for n, v in zip("th", values, strict=True)]
    optimizer = build(stack, driver, Model(variables))
    if driver.backend == "keras3" and without[0] == 0:
        # What it trains is fixed when it is built.
        optimizer.build(variables)

    def step(number: int, count: int) -> None:
        def apply(gradients: list[Any]) -> None:
            optimizer.apply_gradients(zip(gradients, variables, strict=False))

        factors = [min(f, 4.0) if not skips(stack) else f for f in GRADIENTS[number]]
        pairs = zip(factors, values, strict=True)
        given = [np.full_like(value, factor) for factor, value in pairs]
        if number in without:
            given = given[:1] if left_out else [given[0], None]
        driver.compile(apply)(given)

    for number in STEPS:
        step(number, len(variables))
    return [
        np.array(driver.read(v))
        for v in (*variables, *slots(driver, optimizer, variables))
    ]


def slots(driver: Driver, optimizer: Any, variables: Sequence[Any]) -> list[Any]:
    names = slot_names(driver, optimizer)
    return [optimizer.get_slot(v, name) for name in names for v in variables]


@pytest.mark.sample(6)
@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@pytest.mark.parametrize("driver", ["reference", "tf eager", "keras3"], indirect=True)
@pytest.mark.parametrize("without", [(2, 3), (0, 1)], ids=["frozen", "late"])
@pytest.mark.parametrize("stack", STACKS)
def test_a_variable_that_is_left_out_is_as_if_absent(stack, without, driver) -> None:
    got = trained(stack, driver, without, left_out=True)
    expected = trained(stack, driver, without, left_out=False)
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        np.testing.assert_array_equal(a, b, str(number))
    assert not np.array_equal(got[1], HEAD.astype(got[1].dtype))
