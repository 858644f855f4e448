"""Wrappers nest as the table says: to the bit as the pipeline, or not at all."""

from __future__ import annotations

import contextlib
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from harness.parity import drivers
from harness.parity.drivers.protocol import Driver
from harness.tests.stacks.conftest import BACKENDS
from harness.tests.stacks.stacks import build, model_of
from lockstep import registry
from lockstep.errors import LockstepError, UnsupportedError
from lockstep.interface import Array, Gradient
from lockstep.tests.wrappers import (
    FIRST,
    NESTINGS,
    Pipeline,
    has_masters,
    is_refused,
    skips,
)

PAIRS = [" ".join((*pair, "Momentum")) for pair in NESTINGS]
TRIPLES = [
    " ".join((*triple, "Momentum"))
    for third in FIRST.values()
    if third not in ("multitask", "rows")
    for triple in permutations(("multitask", "rows", third))
] + [
    "dynamic agn multitask Momentum",
    "dynamic multitask agn Momentum",
    "multitask dynamic agn Momentum",
    "dynamic agn rows Momentum",
    "agn multitask dynamic Momentum",
    "masters-dynamic multitask agn Momentum",
    "agn multitask agn Momentum",
]


# One number a row, so that its norm is exact.
TABLE = np.array([[1.0, 0, 0], [0, -2, 0], [0, 0, 0.25]])
HEAD = np.array([0.5, -1.0])
PUSH = np.array([[0.125, 0, 0], [0, 0.25, 0], [0, 0, -0.5]])
SPILL = np.where(PUSH == 0.25, np.inf, PUSH)
STILL = np.zeros_like(PUSH)
PULL, NONE = np.array([0.5, 0.25]), np.zeros(2)
SCENARIOS = {
    "zeros first": [(STILL, PULL), (PUSH, PULL), (PUSH, NONE), (STILL, PULL)],
    "overflow first": [(SPILL, PULL), (PUSH, PULL), (PUSH, NONE), (SPILL, NONE)],
    "idle first": [(STILL, NONE), (PUSH, PULL), (STILL, NONE), (PUSH, PULL)],
    "overflow beside zeros": [(STILL, PULL * np.inf), (PUSH, NONE), (PUSH, PULL)],
}


def initial(stack: str) -> dict[str, Array]:
    named = {"table": TABLE, "head": HEAD}
    return {name: value.astype(dtype_of(stack)) for name, value in named.items()}


def dtype_of(stack: str) -> str:
    return "float16" if has_masters(stack) else "float32"


def gradients_of(stack: str, scenario: str) -> list[list[Gradient]]:
    """Return the gradients of a scenario; without a scale overflows are left out."""
    dtype = dtype_of(stack)
    # Several rounds, whose ends meet different steps.
    steps = SCENARIOS[scenario] * (3 if "agn" in stack else 1)
    if not Pipeline(stack, list(initial(stack).values())).skips:
        steps = [
            step for step in steps if np.isfinite(np.concatenate(step, None)).all()
        ]
    return [[gradient.astype(dtype) for gradient in step] for step in steps]


def trained(stack: str, scenario: str, driver: Driver) -> list[list[Array]]:
    """Return the model and the scale after each step of a stack."""
    model = model_of(stack, driver, initial(stack))
    variables, optimizer = model.variables, build(stack, driver, model)
    if hasattr(optimizer, "build"):  # Keras learns of its variables there.
        optimizer.build(variables)

    def take(gradients: list) -> None:
        loss = driver.linear_loss(variables, gradients)
        pairs = optimizer.compute_gradients(loss, var_list=variables)
        optimizer.apply_gradients(pairs)

    step, found = driver.compile(take), []
    for gradients in gradients_of(stack, scenario):
        step(gradients)
        found.append([driver.read(v).copy() for v in variables])
        found[-1] += [
            driver.read(v).copy() for v in getattr(model.worker, "centers", [])
        ]
        if "dynamic" in stack:
            scale = scaling(optimizer).loss_scale
            found[-1].append(driver.read(scale).astype(np.float32))
    return found


def scaling(optimizer: Any) -> Any:
    """Return the wrapper of a stack that scales the loss."""
    while not hasattr(type(optimizer), "loss_scale"):
        optimizer = optimizer.inner_optimizer
    return optimizer


def by_hand(stack: str, scenario: str) -> list[list[Array]]:
    """Return the same of the pipeline, written out."""
    pipeline, found = Pipeline(stack, list(initial(stack).values())), []
    for gradients in gradients_of(stack, scenario):
        pipeline.advance(gradients)
        found.append(pipeline.values())
        if "agn" in stack:
            found[-1] += [shared.value for shared in pipeline.shared]
        if "dynamic" in stack:
            found[-1].append(np.asarray(pipeline.scale))
    return found


def assert_as_the_table_says(stack: str, driver: Driver) -> None:
    if is_refused(stack, driver.backend, driver.mode):
        with pytest.raises(UnsupportedError):
            trained(stack, next(iter(SCENARIOS)), driver)
        return
    for scenario in scenarios_of(stack, driver):
        got, expected = trained(stack, scenario, driver), by_hand(stack, scenario)
        for number, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
            for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
                names = ["table", "head"]
                names += ["shared table", "shared head"] * ("agn" in stack)
                told = f"{scenario}, step {number}: {[*names, 'scale'][k]}"
                np.testing.assert_array_equal(a, b, told)


def scenarios_of(stack: str, driver: Driver) -> list[str]:
    """Return what is tried: a graph has to be built for each, for workers its own."""
    found = list(SCENARIOS)
    if driver.mode != "graph":
        return found
    return [found[skips(stack)]] if "agn" in stack else found[:2]


@pytest.mark.sample(5)
@pytest.mark.parametrize("driver", BACKENDS, indirect=True)
@pytest.mark.parametrize("stack", PAIRS)
def test_a_pair_is_the_pipeline_to_the_bit_or_refused(stack, driver) -> None:
    assert_as_the_table_says(stack, driver)


@pytest.mark.sample(6)
@pytest.mark.parametrize("stack", TRIPLES)
def test_a_triple_is_what_its_pairs_say(stack, driver) -> None:
    assert_as_the_table_says(stack, driver)


STRICT_REFUSES = {
    "multitask multitask",
    "dynamic multitask",
    "agn dynamic",
    "agn agn",
}
"""Pairs that the originals do not nest.

Pairs with masters are left out: the originals do not take a dynamic scale there."""


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "pair", [" ".join(pair) for pair in NESTINGS if not has_masters(" ".join(pair))]
)
@pytest.mark.parametrize("name", ["reference", "tf eager", "tf graph"])
def test_strict_nests_what_the_originals_nest(name: str, pair: str) -> None:
    backend, _, mode = name.partition(" ")
    if not registry.installed(backend):
        pytest.skip(f"{backend} is not installed")
    stack = f"{pair} Momentum"
    with contextlib.closing(drivers.load(backend, mode or None, strict=True)) as driver:
        if pair in STRICT_REFUSES:
            with pytest.raises(LockstepError):
                trained(stack, "zeros first", driver)
        else:
            steps = trained(stack, "zeros first", driver)
            assert not np.array_equal(steps[0][1], HEAD)
