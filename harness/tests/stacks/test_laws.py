"""Laws of every stack on every backend, to the bit.

Nesting and resuming have files of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.parity.drivers.protocol import Driver
from harness.tests.stacks.run import SHAPES, STEPS, Run, gradients
from harness.tests.stacks.stacks import Model, build, slot_names
from lockstep.interface import Array, Rows
from lockstep.tests.wrappers import STACKS, has_masters, skips

ALONE = [stack for stack in STACKS if "agn" not in stack]
"""Workers exchange weights, so that what has no gradient may change, too."""
UNORDERED = [s for s in ALONE if "clipped" not in s and "logmax" not in s]
"""A global norm depends on the order in which its squares are added up."""
pytestmark = pytest.mark.filterwarnings("ignore:Gradients do not exist")


def state_of(run: Run) -> list[list[Array]]:
    """Return for each variable its value and its slots."""
    names = slot_names(run.driver, run.optimizer)
    return [
        [run.driver.read(v).copy(), *(read_slot(run, v, name) for name in names)]
        for v in run.variables
    ]


def read_slot(run: Run, variable: Any, name: str) -> Array:
    slot = run.optimizer.get_slot(variable, name)
    return np.zeros(0) if slot is None else run.driver.read(slot).copy()


def is_same(before: list[Array], after: list[Array]) -> bool:
    return all(map(np.array_equal, before, after))


@pytest.mark.sample(6)
@pytest.mark.parametrize("stack", ALONE)
def test_what_is_left_out_keeps_every_bit_and_the_report_says_so(stack, driver) -> None:
    run = Run(stack, driver)
    run.build()
    seen = set()
    for step in range(STEPS // 2):
        given = gradients(step, run.dtype, skips(stack))
        dense = [g.values if isinstance(g, Rows) else g for g in given]
        zero = [g is None or not g.any() for g in dense]
        finite = all(g is None or np.isfinite(g).all() for g in dense)
        left_out = zero if "multitask" in stack else [g is None for g in given]
        if skips(stack) and not finite:
            left_out = [True] * len(given)
        before = state_of(run)
        run.advance(step)
        kept = [is_same(*pair) for pair in zip(before, state_of(run), strict=True)]
        for expected, is_kept, is_zero in zip(left_out, kept, zero, strict=True):
            assert is_kept if expected else is_zero or not is_kept
        report = getattr(run.optimizer, "last_step", None)
        if report is not None:
            assert report.applied == (not all(left_out))
            names = [n for n, out in zip(SHAPES, left_out, strict=True) if out]
            assert len(names) == len(report.skipped)
            assert all(any(n in told for told in report.skipped) for n in names)
        seen.add(tuple(left_out))
    assert len(seen) > 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("base", ["Momentum", "Adam", "multitask rows Adam"])
@pytest.mark.parametrize("scaled", ["fixed", "masters-fixed"])
def test_a_scale_that_is_a_power_of_two_changes_no_bit(base, scaled, driver) -> None:
    bare = "masters " if scaled == "masters-fixed" else ""
    expected, got = trained(bare + base, driver), trained(f"{scaled} {base}", driver)
    assert is_same(expected, got)
    assert not is_same(expected, trained(bare + base, driver, steps=3))


def trained(stack: str, driver: Driver, steps: int = 12) -> list[Array]:
    """Return the variables after steps whose gradients ``compute_gradients`` takes."""
    run = Run(stack, driver)
    if hasattr(run.optimizer, "build"):
        run.optimizer.build(run.variables)

    def take(given: list[Any]) -> None:
        loss = driver.linear_loss(run.variables, given)
        pairs = run.optimizer.compute_gradients(loss, var_list=run.variables)
        run.optimizer.apply_gradients(pairs)

    step = driver.compile(take)
    for number in range(steps):
        step(gradients(number, run.dtype, overflows=False))
    return [driver.read(v).copy() for v in run.variables]


@pytest.mark.sample(6)
@pytest.mark.parametrize("stack", UNORDERED)
def test_the_order_of_parameters_changes_no_bit(stack, driver) -> None:
    expected, got = (in_order(stack, driver, order) for order in ([0, 1, 2], [0, 2, 1]))
    assert is_same(expected, got)


def in_order(stack: str, driver: Driver, order: list[int]) -> list[Array]:
    """Return the variables after steps of an optimizer that has them in this order."""
    values = [Run._initial(s, "float32") for s in SHAPES.values()]
    if has_masters(stack):
        values = [value.astype("float16") for value in values]
    made = [driver.variable(n, v) for n, v in zip(SHAPES, values, strict=True)]
    optimizer = build(stack, driver, Model([made[k] for k in order]))

    def apply(given: list[Any]) -> None:
        optimizer.apply_gradients([(given[k], made[k]) for k in order])

    step = driver.compile(apply)
    for number in range(20):
        given = gradients(number, str(values[0].dtype), skips(stack))
        step([*given[:2], given[2].astype(values[2].dtype)])
    return [driver.read(v).copy() for v in made]
