"""Variables left out for a while, or seen late: as if their gradients were absent."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from harness.parity.drivers.protocol import Driver
from harness.tests.stacks.stacks import Model, build, slot_names
from lockstep.interface import Array
from lockstep.registry import load
from lockstep.tests.wrappers import has_masters, skips

BACKENDS = {
    "reference": ("", "numpy"),
    "tf": ("eager", "tensorflow"),
    "keras3": ("eager", "keras"),
}
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
everyone = pytest.mark.parametrize("stack", STACKS)


@pytest.fixture(params=BACKENDS)
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    mode, needs = BACKENDS[request.param]
    pytest.importorskip(needs, reason=f"needs {needs}")
    module = importlib.import_module(f"harness.parity.drivers.{request.param}")
    yield module.make_driver(mode, load(request.param))


def trained(
    stack: str, driver: Driver, without: Sequence[int], left_out: bool
) -> list[Array]:
    """Train a table and a head; in some steps the head is left out, or absent.

    Args:
        stack: the wrappers.
        backend: where.
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


def assert_same(got: list[Array], expected: list[Array]) -> None:
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        np.testing.assert_array_equal(a, b, str(number))


@pytest.mark.sample(6)
@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@everyone
def test_a_variable_that_is_frozen_for_a_while_is_as_if_absent(stack, driver) -> None:
    frozen = (2, 3)
    got = trained(stack, driver, frozen, left_out=True)
    assert_same(got, trained(stack, driver, frozen, left_out=False))
    assert not np.array_equal(got[1], HEAD.astype(got[1].dtype))


@pytest.mark.sample(1)
@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@everyone
def test_a_variable_that_appears_later_is_as_if_absent_until_then(
    stack, driver
) -> None:
    late = (0, 1)
    got = trained(stack, driver, late, left_out=True)
    assert_same(got, trained(stack, driver, late, left_out=False))


@everyone
def test_keras_refuses_a_variable_that_it_was_not_built_with(stack) -> None:
    keras = pytest.importorskip("keras", reason="needs keras")
    module = importlib.import_module("harness.parity.drivers.keras3")
    driver = module.make_driver("eager", load("keras3"))
    known, late = (keras.Variable(value, dtype="float32") for value in (TABLE, HEAD))
    optimizer = build(stack, driver, Model([known]))
    ones = [keras.ops.ones_like(value) for value in (known, late)]
    optimizer.apply(ones[:1], [known])
    before = known.numpy()
    with pytest.raises(ValueError, match="build"):
        optimizer.apply(ones, [known, late])
    np.testing.assert_array_equal(known.numpy(), before)
    optimizer.apply(ones[:1], [known])
    assert not np.array_equal(known.numpy(), before)
