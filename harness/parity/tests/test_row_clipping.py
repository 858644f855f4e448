"""Row clipping around what masters train, on each backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.parity import drivers
from lockstep import registry


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
