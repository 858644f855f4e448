"""The default of row clipping on each backend, against the reference's default."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.parity import drivers
from harness.parity.distance import distance
from lockstep import registry
from lockstep.interface import Gradient, Rows

SHAPES: list[tuple[tuple[int, ...], list[int], bool]] = [
    ((20, 3), [1], False),
    ((5, 12), [0], False),
    ((6, 5), [-2, -1], False),
    ((3, 4, 5), [0, 2], False),
    ((9,), [], False),
    ((20, 3), [-1], True),
    ((8, 2, 3), [1, 2], True),
]
ALLOWED = {"float32": 2.0, "float16": 1.0}
"""A sum of squares in another order; float16 is computed in float32, rounded once."""


def gradients(shape: tuple[int, ...], sparse: bool, dtype: str) -> list[Gradient]:
    generator = np.random.default_rng(3)
    if not sparse:
        return [generator.normal(size=shape).astype(dtype) for _ in range(3)]
    named = [generator.integers(shape[0], size=5) for _ in range(3)]
    values = [generator.normal(size=(5, *shape[1:])).astype(dtype) for _ in named]
    return [Rows(ids, v, shape) for ids, v in zip(named, values, strict=True)]


def trained(backend: str, case: Any, dtype: str) -> list[Any]:
    """Return the variable after each of three steps of gradient descent."""
    shape, axes, sparse = case
    driver = drivers.load(backend, strict=False)
    value = np.random.default_rng(2).normal(size=shape).astype(dtype)
    variable = driver.variable("w", value)
    base = driver.optimizer("GradientDescent", {"learning_rate": 0.125}, [variable])
    clipped = driver.names.VariableClippingOptimizer(
        base, {driver.key(variable): axes}, 0.9
    )
    step = driver.compile(lambda g: [clipped.apply_gradients([(g[0], variable)])])
    states = []
    for gradient in gradients(shape, sparse, dtype):
        step([gradient])
        states.append(np.array(driver.read(variable)))
    driver.close()
    return states


@pytest.mark.parametrize("dtype", ALLOWED)
@pytest.mark.parametrize("case", SHAPES, ids=str)
@pytest.mark.parametrize("backend", ["keras3", "pytorch", "tf"])
def test_each_backend_clips_as_the_reference_does(
    backend: str, case: Any, dtype: str
) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    expected = trained("reference", case, dtype)
    for got, right in zip(trained(backend, case, dtype), expected, strict=True):
        assert distance(got, right).ulp <= ALLOWED[dtype]


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "default"])
@pytest.mark.parametrize("backend", registry.BACKENDS)
def test_masters_have_the_limits_of_their_variables_but_not_under_strict(
    backend: str, strict: bool
) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    if strict and not registry.find(backend).has_strict:
        pytest.skip(f"{backend} has one behaviour")
    driver = drivers.load(backend, strict=strict)
    w = driver.variable("w", np.float16([3, 4]))
    sgd = driver.optimizer("GradientDescent", {"learning_rate": 1.0}, [w])
    rows = driver.names.VariableClippingOptimizer(sgd, {driver.key(w): [0]}, 2.5)
    masters = driver.names.MixedPrecisionOptimizerWrapper(rows, 8.0)

    def step(gradients: list[Any]) -> Any:
        loss = driver.linear_loss([w], gradients, half=True)
        pairs = masters.compute_gradients(loss, [w])
        return {"": masters.apply_gradients(pairs)}

    driver.compile(step)([np.zeros(2, np.float16)])
    assert driver.read(w).tolist() == ([3.0, 4.0] if strict else [1.5, 2.0])
