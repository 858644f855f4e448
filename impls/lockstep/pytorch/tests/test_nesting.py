"""Wrappers of wrappers, and what is shared by mistake: refused, or right."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch.nn import Parameter

from lockstep.pytorch import (
    DynamicLossScale,
    FixedLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
)
from lockstep.pytorch.tests.half_models import wrapped_weight


def half() -> Parameter:
    return Parameter(torch.full((2, 2), 3.0).half())


def single() -> Parameter:
    return Parameter(torch.full((2, 2), 3.0))


def sgd(*weights: Parameter) -> torch.optim.SGD:
    named = [(f"w{k}", weight) for k, weight in enumerate(weights)]
    return torch.optim.SGD(named, lr=1.0)


SCALED = {
    "scaled": lambda opt: MixedPrecisionLossScaleOptimizer(opt, "dynamic"),
    "masters": lambda opt: MixedPrecisionOptimizerWrapper(opt, "dynamic"),
}


@pytest.mark.parametrize("kind", SCALED)
def test_a_moving_scale_belongs_to_one_optimizer(kind) -> None:
    wrap = {
        "scaled": MixedPrecisionLossScaleOptimizer,
        "masters": MixedPrecisionOptimizerWrapper,
    }[kind]
    scale, base = DynamicLossScale(8.0), sgd(half())
    first = wrap(sgd(half()), scale)
    with pytest.raises(
        ValueError, match="loss_scale: expected a loss scale of its own"
    ):
        wrap(base, scale)
    assert "loss_scale" not in base.param_groups[0]
    other = wrap(base, deepcopy(scale))
    first.scale_object.move(False)
    assert (first.loss_scale, other.loss_scale) == (4.0, 8.0)
    assert wrap(sgd(half()), FixedLossScale(8)).loss_scale == 8


def test_a_copied_scale_is_not_a_copied_optimizer() -> None:
    scale = DynamicLossScale(8.0)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd(single()), scale)
    optimizer.scale_object.move(False)
    assert deepcopy(scale).numbers.keys() == set(scale.keys)
    assert deepcopy(scale).value() == 4.0
    twin = deepcopy(optimizer)
    twin.scale_object.move(False)
    assert (optimizer.loss_scale, twin.loss_scale) == (4.0, 2.0)


def adam(weights) -> torch.optim.Adam:
    return torch.optim.Adam([(f"w{k}", w) for k, w in enumerate(weights)], lr=0.25)


@pytest.mark.parametrize("pattern", ["0+", "+0+", "000+", "b0+"])
def test_masters_and_multitask_go_on_after_gradients_of_zeros(pattern) -> None:
    """+ all gradients, a or b only one of the two, 0 none: all zero otherwise."""
    found = []
    for dtype in (torch.float16, torch.float32):
        weights = [Parameter(torch.ones(2).to(dtype)) for _ in range(2)]
        optimizer = MultitaskOptimizerWrapper(adam(weights))
        if dtype == torch.float16:
            optimizer = MixedPrecisionOptimizerWrapper(optimizer)
        for letter in pattern:
            for name, weight in zip("ab", weights, strict=True):
                is_there = letter in ("+", name)
                weight.grad = torch.full_like(weight, float(is_there))
            optimizer.step()
        found.append([weight.float() for weight in weights])
        assert len(optimizer.state_dict()["state"]) == 2
    assert all(map(torch.equal, *found))


def test_a_first_step_at_rate_0_counts() -> None:
    weight = Parameter(torch.ones(2).half())
    optimizer = wrapped_weight(weight, lr=0.0, loss_scale=DynamicLossScale(4.0, 1))
    weight.grad = torch.zeros_like(weight)
    optimizer.step()
    assert optimizer.last_step.applied
    assert optimizer.loss_scale == 8.0


def test_a_multitask_wrapper_inside_makes_no_state_at_rate_0() -> None:
    weight = Parameter(torch.ones(2).half())
    base = torch.optim.Adam([weight], lr=0.0)
    optimizer = MixedPrecisionOptimizerWrapper(MultitaskOptimizerWrapper(base))
    weight.grad = torch.zeros_like(weight)
    optimizer.step()
    assert not any(base.state.values())
