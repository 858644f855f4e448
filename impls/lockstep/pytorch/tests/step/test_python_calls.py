"""How many Python functions a step of ``optimize_loss`` enters for each parameter.

What it enters once a step depends on torch; what grows with the parameters is ours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import Parameter

from lockstep.pytorch import optimize_loss

MIXED = {"dtype": "mixed", "loss_scaling": 8.0, "clip_gradients": 1.0}


def training_step(count: int, optimizer: str, options: dict[str, Any]) -> Any:
    """Return a step on so many parameters, half of precision if it is mixed."""
    dtype = torch.float16 if "dtype" in options else torch.float32
    weights = [Parameter(torch.ones(4, dtype=dtype)) for _ in range(count)]

    def loss() -> torch.Tensor:
        return torch.cat(weights).float().square().sum()

    rate = 0.01
    return optimize_loss(
        loss, optimizer, {}, lambda _: rate, var_list=weights, **options
    )


def calls_of(step: Callable[[], Any]) -> int:
    """Return how many Python functions the sixth step enters."""
    for _ in range(5):
        step()
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        step()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    ("optimizer", "options", "most"),
    [("SGD", {}, 4), ("Adam", {}, 4), ("Adam", MIXED, 6)],
    ids=["SGD", "Adam", "mixed"],
)
def test_calls_for_each_parameter(optimizer, options, most) -> None:
    few, many = (calls_of(training_step(n, optimizer, options)) for n in (20, 40))
    assert many - few <= 20 * most
