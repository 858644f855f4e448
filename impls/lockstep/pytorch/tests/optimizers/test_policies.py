"""What the rules compute once, and Adam's size of a step."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from lockstep.pytorch import AdamOptimizer
from lockstep.pytorch.optimizers.rules import adam
from lockstep.pytorch.tensors.rounding import sqrt
from lockstep.pytorch.tests.subjects import TF1

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def in_tensors(policy: adam.Policy, power1: float, power2: float) -> Tensor:
    """Return the size of a step, computed in tensors of the policy's dtype."""
    rate = policy.learning_rate
    root = sqrt(1 - rate.new_tensor(power2))
    return rate * root / (1 - rate.new_tensor(power1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_round_as_tensors_do(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(500, 3, generator=generator).tolist()
    special = [[1e-3, power1, power2] for power1 in (0.9, 1.0) for power2 in (1.0, 1.5)]
    for rate, power1, power2 in [*drawn, *special, [0.0, 1.0, 0.5]]:
        number = torch.tensor(rate, dtype=dtype)
        policy = adam.Policy(number, number, number, number)
        shared = {"beta1_power": power1, "beta2_power": power2}
        ours = torch.tensor(adam.step_size(policy, shared), dtype=dtype)
        right = in_tensors(policy, power1, power2)
        assert torch.equal(ours, right) or (ours.isnan() and right.isnan())


def steps(optimizer: Any, weight: Parameter, count: int) -> None:
    for _ in range(count):
        weight.grad = torch.tensor([0.5, -2.0])
        optimizer.step()


@pytest.mark.parametrize("make", TF1.values(), ids=TF1)
@pytest.mark.parametrize("way", ["number", "tensor", "load"])
def test_a_new_rate_holds_from_the_next_step_on(make: Any, way: str) -> None:
    weights = [Parameter(torch.tensor([1.0, 2.0])) for _ in range(2)]
    ours, fresh = (make([weight]) for weight in weights)
    rate = 0.25
    if way == "tensor":
        ours.param_groups[0]["lr"] = torch.tensor(0.125)
        fresh.param_groups[0]["lr"] = 0.125
    for optimizer, weight in zip((ours, fresh), weights, strict=True):
        steps(optimizer, weight, 2)
    other = make([weights[1]])
    other.load_state_dict(fresh.state_dict())
    other.param_groups[0]["lr"] = rate
    if way == "tensor":
        ours.param_groups[0]["lr"].fill_(rate)
    elif way == "load":
        ours.load_state_dict(deepcopy(other.state_dict()))
    else:
        ours.param_groups[0]["lr"] = rate
    steps(ours, weights[0], 2)
    steps(other, weights[1], 2)
    assert torch.equal(*weights)


def test_hyper_parameters_become_tensors_once(monkeypatch) -> None:
    weight = Parameter(torch.tensor([1.0, 2.0]))
    optimizer = AdamOptimizer([weight])
    made = []
    policy = AdamOptimizer.policy

    def counted(self: Any, *arguments: Any) -> Any:
        made.append(arguments)
        return policy(self, *arguments)

    monkeypatch.setattr(AdamOptimizer, "policy", counted)
    steps(optimizer, weight, 3)
    optimizer.param_groups[0]["beta2"] = 0.5
    steps(optimizer, weight, 2)
    assert len(made) == 2
