"""The laws of movement against a direct simulation of the optimizers' equations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from harness.tasks.absent_heads import laws

ADAM = {"name": "Adam", "learning_rate": 0.01, "beta1": 0.9, "beta2": 0.999}
RMSPROP = {"name": "RMSProp", "learning_rate": 0.01, "decay": 0.9, "momentum": 0.0}
MOMENTUM = {"name": "Momentum", "learning_rate": 0.03, "momentum": 0.9}
OPTIMIZERS = (ADAM, RMSPROP, MOMENTUM)

STEPS, RUNS = 1000, 2000
WINDOW = (500, 1000)


def simulate(optimizer: Mapping[str, Any], wrapper: str, presence: float) -> float:
    """Movement per informative step of many scalar weights, by the TF1 equations."""
    rng = np.random.default_rng(0)
    present = rng.random((STEPS, 3, RUNS)) < presence
    first, second = np.zeros(RUNS), np.full(RUNS, optimizer["name"] == "RMSProp", float)
    clock, moved = np.zeros(RUNS), 0.0
    for step, (mine, *others) in enumerate(present):
        g = mine.astype(float)
        updated = np.ones(RUNS, bool) if wrapper == "none" else mine
        any_present = mine | np.any(others, axis=0)
        clock += any_present if wrapper == "default" else 1
        new_first, new_second, move = update(optimizer, first, second, g, clock)
        first, second = (
            np.where(updated, new, old)
            for new, old in ((new_first, first), (new_second, second))
        )
        if WINDOW[0] <= step < WINDOW[1]:
            moved += move[updated].sum()
    return moved / laws.unit(optimizer) / present[WINDOW[0] : WINDOW[1], 0].sum()


def update(
    optimizer: Mapping[str, Any], first: Any, second: Any, g: Any, t: Any
) -> Any:
    """Return both slots and the movement of one step."""
    rate = optimizer["learning_rate"]
    if optimizer["name"] == "Momentum":
        first = optimizer["momentum"] * first + g
        return first, second, rate * first
    if optimizer["name"] == "RMSProp":
        second = optimizer["decay"] * second + (1 - optimizer["decay"]) * g**2
        return first, second, rate * g / np.sqrt(second)
    b1, b2 = optimizer["beta1"], optimizer["beta2"]
    first, second = b1 * first + (1 - b1) * g, b2 * second + (1 - b2) * g**2
    t = np.maximum(t, 1)
    corrected = rate * np.sqrt(1 - b2**t) / (1 - b1**t)
    return first, second, corrected * first / (np.sqrt(second) + 1e-12)


@pytest.mark.sample(7)
@pytest.mark.parametrize("presence", (0.5, 0.1, 0.02))
@pytest.mark.parametrize("wrapper", ("none", "default", "strict"))
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o["name"])
def test_the_law_is_what_a_simulation_gives(
    optimizer: Mapping[str, Any], wrapper: str, presence: float
) -> None:
    law = laws.movement(optimizer, wrapper, presence, WINDOW)
    # 10,000 to 500,000 informative steps: the error of the simulation.
    assert simulate(optimizer, wrapper, presence) == pytest.approx(law, rel=0.01)


def test_an_optimizer_without_a_law_has_none() -> None:
    nesterov = {**MOMENTUM, "use_nesterov": True}
    adagrad = {"name": "Adagrad", "learning_rate": 0.1}
    for optimizer in (nesterov, adagrad):
        assert np.isnan(laws.movement(optimizer, "none", 0.1, WINDOW))
