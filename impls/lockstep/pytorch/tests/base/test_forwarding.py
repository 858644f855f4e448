"""A wrapper has the attributes of what it wraps, but none of its methods."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.optim import Optimizer

from lockstep.pytorch import (
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)

WRAPPERS: dict[str, Callable[[Optimizer], Optimizer]] = {
    "multitask": MultitaskOptimizerWrapper,
    "rows": lambda o: VariableClippingOptimizer(
        o, {o.param_groups[0]["params"][0]: [0]}, 1.0
    ),
    "scale": lambda o: MixedPrecisionLossScaleOptimizer(o, 8.0),
    "masters": lambda o: MixedPrecisionOptimizerWrapper(o, 8.0),
    "stack": lambda o: MixedPrecisionLossScaleOptimizer(
        MultitaskOptimizerWrapper(o), 8.0
    ),
}


class TwoPhase(torch.optim.SGD):
    """Steps by ``half_step`` twice, and swaps its weights for an evaluation."""

    rho = 0.5
    mode = "train"

    def half_step(self) -> None:
        super().step()

    def train(self) -> None:
        self.mode = "train"

    def eval(self) -> None:
        self.mode = "eval"


@pytest.fixture(params=WRAPPERS)
def optimizer(request: pytest.FixtureRequest) -> Optimizer:
    weight = torch.nn.Parameter(torch.ones(2))
    return WRAPPERS[request.param](TwoPhase([weight], lr=0.1))


def test_another_stepping_method_is_refused_and_nothing_moves(optimizer) -> None:
    (weight,) = optimizer.param_groups[0]["params"]
    weight.grad = torch.ones(2)
    assert not hasattr(optimizer, "half_step")
    with pytest.raises(AttributeError, match=r"inner_optimizer\.half_step"):
        optimizer.half_step()
    assert weight.tolist() == [1.0, 1.0]


def test_values_and_modes_are_forwarded(optimizer) -> None:
    assert optimizer.rho == 0.5
    optimizer.eval()
    assert optimizer.mode == "eval"
    optimizer.train()
    assert optimizer.mode == "train"


def test_an_unknown_attribute_names_the_wrapper(optimizer) -> None:
    name = type(optimizer).__name__
    with pytest.raises(AttributeError, match=f"'{name}' object has no attribute 'rh0'"):
        optimizer.rh0  # noqa: B018
