"""A run goes on at the right rates, in whichever order its parts are loaded."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, SequentialLR

from lockstep.pytorch import PolicyLR

Maker = Callable[[Optimizer], LRScheduler]
POLICIES: dict[str, dict[str, Any]] = {
    "cosine_decay": {"decay_steps": 10},
    "poly_decay": {"decay_steps": 10, "warmup_steps": 3},
    "piecewise_constant": {"boundaries": [2, 6], "decay_rates": [0.5, 0.1]},
    "transformer_policy": {"d_model": 16, "warmup_steps": 4},
}


def in_sequence(optimizer: Optimizer) -> LRScheduler:
    first, second = (PolicyLR(optimizer, n, **POLICIES[n]) for n in list(POLICIES)[:2])
    return SequentialLR(optimizer, [first, second], milestones=[4])


MAKERS: dict[str, Maker] = {
    "SequentialLR": in_sequence,
    "a function": lambda opt: PolicyLR(opt, lambda step: 1.0 / (step + 1)),
    **{
        name: lambda opt, name=name, given=given: PolicyLR(opt, name, **given)
        for name, given in POLICIES.items()
    },
}


ORDERS = [
    order
    for order in permutations(["optimizer", "make", "scheduler"])
    if order.index("make") < order.index("scheduler")
]


def optimizer_of(groups: int, tensor: bool) -> Optimizer:
    rates = [0.1, 0.3][:groups]
    return torch.optim.SGD(
        [
            {
                "params": [torch.nn.Parameter(torch.ones(1))],
                "lr": torch.tensor(rate) if tensor else rate,
            }
            for rate in rates
        ],
        lr=0.1,
    )


def rates_of(optimizer: Optimizer, scheduler: LRScheduler, steps: int) -> list[Any]:
    rates = []
    for _ in range(steps):
        rates.append([float(group["lr"]) for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("groups", "tensor"), [(1, False), (2, False), (1, True)])
@pytest.mark.parametrize("done", [2, 5])
@pytest.mark.parametrize("name", MAKERS)
def test_the_first_rate_after_a_resume_is_that_of_the_run(
    name: str, done: int, groups: int, tensor: bool, order: tuple[str, ...]
) -> None:
    optimizer = optimizer_of(groups, tensor)
    scheduler = MAKERS[name](optimizer)
    rates_of(optimizer, scheduler, done)
    saved = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict()))
    expected = rates_of(optimizer, scheduler, 3)

    again = optimizer_of(groups, tensor)
    resumed = None
    for act in order:
        if act == "optimizer":
            again.load_state_dict(saved[0])
        elif act == "make":
            resumed = MAKERS[name](again)
        else:
            resumed.load_state_dict(saved[1])
    assert rates_of(again, resumed, 3) == expected
