"""LARC before NovoGrad: both divide by norms, and neither undoes the other."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from harness.parity.drivers.protocol import Driver
from harness.tests.stacks.stacks import BASES
from harness.tests.stacks.test_nesting import BACKENDS
from lockstep.interface import Array
from lockstep.registry import load

LARC = {"larc_eta": 0.25, "larc_mode": "scale"}
START = np.array([3.0, -4.0, 12.0], np.float32)
GRADIENTS = [
    np.array(values, np.float32)
    for values in ([0.5, 1.0, -1.0], [8.0, 4.0, 1.0], [-0.25, 0.0, 0.125])
]


@pytest.fixture(params=BACKENDS)
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    backend, mode, needs = BACKENDS[request.param]
    pytest.importorskip(needs, reason=f"needs {needs}")
    module = importlib.import_module(f"harness.parity.drivers.{backend}")
    made = module.make_driver(mode, load(backend))
    yield made
    made.close()


def trained(driver: Driver, larc: dict[str, Any] | None) -> list[Array]:
    """Return a weight after each step: gradients, LARC, NovoGrad."""
    variable = driver.variable("w", START)
    optimizer = driver.optimizer("NovoGrad", BASES["NovoGrad"], [variable])
    rate = BASES["NovoGrad"]["learning_rate"]

    def take(gradients: list[Any]) -> None:
        pairs = list(zip(gradients, [variable], strict=True))
        pairs = driver.names.post_process_gradients(pairs, None, rate, None, larc)
        optimizer.apply_gradients(pairs)

    step, found = driver.compile(take), []
    for gradient in GRADIENTS:
        step([gradient])
        found.append(driver.read(variable).copy())
    return found


def by_hand(larc: bool) -> list[Array]:
    """Return the same, written out in float64."""
    rate, beta1, decay = (
        BASES["NovoGrad"][name] for name in ("learning_rate", "beta1", "weight_decay")
    )
    w, momentum, moment = START.astype(np.float64), np.zeros(3), 0.0
    found = []
    for gradient in GRADIENTS:
        norm = np.linalg.norm(gradient)
        ratio = LARC["larc_eta"] * np.linalg.norm(w) / norm if larc else 1.0
        square = (ratio * norm) ** 2
        moment = 0.98 * moment + 0.02 * square if moment else square
        direction = ratio * gradient / np.sqrt(moment) + decay * w
        momentum = beta1 * momentum + direction
        w = w - rate * momentum
        found.append(w)
    return found


@pytest.mark.parametrize("larc", [None, LARC], ids=["bare", "larc"])
def test_novograd_takes_what_larc_gives_it(driver: Driver, larc: Any) -> None:
    for got, expected in zip(trained(driver, larc), by_hand(bool(larc)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-6)


def test_larc_changes_what_novograd_does_from_the_second_step_on(
    driver: Driver,
) -> None:
    bare, scaled = trained(driver, None), trained(driver, LARC)
    # The first gradient is divided by its own norm, whatever it was multiplied by.
    np.testing.assert_allclose(scaled[0], bare[0], rtol=2e-6)
    assert np.abs(scaled[1] - bare[1]).max() > 0.01
