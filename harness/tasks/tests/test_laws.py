"""The simulated movement, where arithmetic says what it must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from harness.tasks.absent_heads import laws

ADAM = {"name": "Adam", "learning_rate": 0.01, "beta1": 0.9, "beta2": 0.999}
RMSPROP = {"name": "RMSProp", "learning_rate": 0.01, "decay": 0.9, "momentum": 0.0}
MOMENTUM = {"name": "Momentum", "learning_rate": 0.03, "momentum": 0.9}

WINDOW = (500, 1000)


@pytest.mark.parametrize(
    ("optimizer", "wrapper", "presence", "expected"),
    [
        (ADAM, "none", 1.0, 1),
        (ADAM, "default", 1.0, 1),
        (RMSPROP, "strict", 0.1, 1),
        (MOMENTUM, "none", 0.1, 1),
        (MOMENTUM, "default", 0.5, 1),
        # m and v are p; every tenth step has the task.
        ({**ADAM, "beta2": 0.99}, "none", 0.5, 0.5**-0.5),
        # The bias correction of step 750 at the task's update 375.
        (ADAM, "strict", 0.5, ((1 - 0.999**750) / (1 - 0.999**375)) ** 0.5),
    ],
)
def test_the_movement_is_that_of_arithmetic(
    optimizer: Mapping[str, Any], wrapper: str, presence: float, expected: float
) -> None:
    # 200,000 informative steps and more.
    moved = laws.movement(optimizer, wrapper, presence, WINDOW)
    assert moved == pytest.approx(expected, rel=0.02)


def test_an_optimizer_without_a_law_has_none() -> None:
    nesterov = {**MOMENTUM, "use_nesterov": True}
    adagrad = {"name": "Adagrad", "learning_rate": 0.1}
    for optimizer in (nesterov, adagrad):
        assert np.isnan(laws.movement(optimizer, "none", 0.1, WINDOW))
