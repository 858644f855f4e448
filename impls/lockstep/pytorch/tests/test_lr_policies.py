"""PolicyLR: its rates, groups, states and refusals; policies at tensor steps."""

from __future__ import annotations

import copy
import functools
import math
import pickle
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
import torch
from torch.nn import Parameter
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, SequentialLR

from lockstep.pytorch import (
    MomentumOptimizer,
    MultitaskOptimizerWrapper,
    PolicyLR,
    lr_policies,
)

ARGUMENTS: dict[str, dict[str, Any]] = {
    "fixed_lr": {},
    "piecewise_constant": {"boundaries": [3, 9], "decay_rates": [0.5, 0.3]},
    "exp_decay": {"decay_steps": 4, "decay_rate": 0.7, "use_staircase_decay": False},
    "poly_decay": {"decay_steps": 3000, "power": 1.7, "warmup_steps": 5},
    "cosine_decay": {"decay_steps": 2100, "begin_decay_at": 3, "min_lr": 0.02},
    "inv_poly_decay": {"decay_steps": 2100, "min_lr": 0.02, "warmup_steps": 3},
    "transformer_policy": {"d_model": 16, "warmup_steps": 600, "dtype": "float16"},
}


def optimizer(*rates: Any, default: float = 0.1) -> Optimizer:
    """Return one with a group for each rate, None for the default's."""
    groups: list[dict[str, Any]] = [
        {"params": [Parameter(torch.ones(2))]} for _ in rates
    ]
    for group, rate in zip(groups, rates, strict=True):
        group.update({} if rate is None else {"lr": rate})
    return SGD(groups, lr=default)


def rates_of(made: Optimizer) -> list[float]:
    return [float(group["lr"]) for group in made.param_groups]


def walk(made: Optimizer, scheduler: LRScheduler, steps: int) -> list[list[float]]:
    """Return the rates with which some steps are taken."""
    rates = []
    for _ in range(steps):
        rates.append(rates_of(made))
        made.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_tensor_step_gives_a_tensor_of_the_same_rate(name: str, strict: bool) -> None:
    policy = functools.partial(
        getattr(lr_policies, name), lr=0.1, strict=strict, **ARGUMENTS[name]
    )
    for step in (0, 1, 3, 4, 9, 17, 70000):
        rate = policy(torch.tensor(step))
        if name != "fixed_lr":
            dtype = torch.float16 if name == "transformer_policy" else torch.float32
            assert (rate.dtype, rate.shape) == (dtype, ())
        assert type(policy(step)) is float
        assert float(rate) == policy(step)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_rates_are_those_of_the_policy_at_any_step(name: str) -> None:
    made = optimizer(0.1, 0.1)
    scheduler = PolicyLR(made, name, **ARGUMENTS[name])
    walked = walk(made, scheduler, 2100)
    policy = functools.partial(getattr(lr_policies, name), lr=0.1, **ARGUMENTS[name])
    for step in (*range(40), *range(1000, 1050), 2047, 2048, 2099):
        assert walked[step] == [policy(step)] * 2
    for step in (2000, 3, 1024, 0):
        scheduler.step(step)
        assert rates_of(made) == scheduler.get_last_lr() == [policy(step)] * 2


def test_a_callable_may_be_given_instead_of_a_name() -> None:
    policy = functools.partial(lr_policies.poly_decay, learning_rate=1.0, decay_steps=4)
    for given in (policy, lambda step: policy(step)):
        made = optimizer(0.1, 0.1)
        rates = walk(made, PolicyLR(made, given), 5)
        assert [row[0] for row in rates] == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_it_walks_as_lambda_lr_does() -> None:
    def law(step: int) -> float:
        return 1.0 / (1 + step)

    ours, theirs = optimizer(1.0, 0.5), optimizer(1.0, 0.5)
    rates = walk(ours, PolicyLR(ours, law), 9)
    assert rates == walk(theirs, LambdaLR(theirs, law), 9)


@pytest.mark.parametrize(
    ("groups", "given", "expected"),
    [
        ((0.5, 0.125), {}, [[0.5, 0.125], [0.25, 0.0625]]),
        # A given rate stands for the optimizer's default, of which 0.1 is the first's.
        ((0.01, None), {"lr": 2.0}, [[0.2, 2.0], [0.1, 1.0]]),
        ((0.01, None), {"learning_rate": 2.0}, [[0.2, 2.0], [0.1, 1.0]]),
        ((0.2,), {"learning_rate": 0.5}, [[1.0], [0.5]]),
    ],
    ids=str,
)
def test_groups_keep_the_ratio_of_their_rates(
    groups: tuple[Any, ...], given: dict[str, Any], expected: list[list[float]]
) -> None:
    made = optimizer(*groups)
    rates = walk(made, PolicyLR(made, "poly_decay", decay_steps=4, **given), 3)
    assert [rates[0], rates[2]] == [pytest.approx(row) for row in expected]


def test_without_a_default_rate_groups_must_be_alike() -> None:
    made, other = optimizer(0.5, 0.5), optimizer(1e-5, 1e-3)
    del made.defaults["lr"], other.defaults["lr"]
    PolicyLR(made, "fixed_lr", learning_rate=0.125)
    assert rates_of(made) == [0.125, 0.125]
    with pytest.raises(ValueError):
        PolicyLR(other, "fixed_lr", learning_rate=1e-3)
    assert rates_of(other) == [1e-5, 1e-3]
    assert "initial_lr" not in other.param_groups[0]


def test_a_rate_in_a_tensor_is_written_in_place() -> None:
    rate = torch.tensor(0.5)
    made = Adam([Parameter(torch.ones(2))], lr=rate)
    walk(made, PolicyLR(made, "poly_decay", decay_steps=4), 2)
    assert made.param_groups[0]["lr"] is rate
    assert rate.item() == 0.25


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("name", ["fixed_lr", "poly_decay"])
def test_the_rate_of_a_policy_may_be_a_tensor(name: str, dtype: torch.dtype) -> None:
    arguments = {} if name == "fixed_lr" else {"decay_steps": 10}
    rates = []
    for rate in (torch.tensor(2, dtype=dtype), 2.0):
        made = optimizer(0.5)
        policy = functools.partial(getattr(lr_policies, name), lr=rate, **arguments)
        rates.append(walk(made, PolicyLR(made, policy), 3))
    assert rates[0] == rates[1]


def test_it_drives_our_wrappers() -> None:
    weight = Parameter(torch.ones(2))
    made = MultitaskOptimizerWrapper(MomentumOptimizer([weight], 0.5, 0.9))
    weight.grad = torch.ones(2)
    rates = walk(made, PolicyLR(made, "poly_decay", decay_steps=4), 3)
    assert rates == [[0.5], [0.375], [0.25]]


def test_copies_go_on_alone() -> None:
    made = optimizer(0.5)
    scheduler = PolicyLR(made, "poly_decay", decay_steps=4)
    walk(made, scheduler, 2)
    for twin in (copy.deepcopy(scheduler), pickle.loads(pickle.dumps(scheduler))):
        twin.step()
        assert rates_of(twin.optimizer) == [0.125]
    assert rates_of(made) == [0.25]


# A run goes on at the right rate, in whichever order its parts are loaded.


def in_sequence(made: Optimizer) -> LRScheduler:
    parts = [PolicyLR(made, n, **ARGUMENTS[n]) for n in ("exp_decay", "poly_decay")]
    return SequentialLR(made, parts, milestones=[4])


MAKERS: dict[str, Callable[[Optimizer], LRScheduler]] = {
    "SequentialLR": in_sequence,
    "a function": lambda opt: PolicyLR(opt, lambda step: 1.0 / (step + 1)),
    **{
        name: lambda opt, name=name, given=given: PolicyLR(opt, name, **given)
        for name, given in ARGUMENTS.items()
    },
}
ORDERS = [
    order
    for order in permutations(["optimizer", "make", "scheduler"])
    if order.index("make") < order.index("scheduler")
]


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
@pytest.mark.parametrize("groups", [(0.1,), (0.1, 0.3), (torch.tensor(0.1),)], ids=len)
@pytest.mark.parametrize("done", [2, 5])
@pytest.mark.parametrize("name", MAKERS)
def test_the_first_rate_after_a_resume_is_that_of_the_run(
    name: str, done: int, groups: tuple[Any, ...], order: tuple[str, ...]
) -> None:
    made = optimizer(*copy.deepcopy(groups))
    scheduler = MAKERS[name](made)
    walk(made, scheduler, done)
    saved = copy.deepcopy((made.state_dict(), scheduler.state_dict()))
    expected = walk(made, scheduler, 3)

    again = optimizer(*copy.deepcopy(groups))
    resumed = None
    for act in order:
        if act == "optimizer":
            again.load_state_dict(saved[0])
        elif act == "make":
            resumed = MAKERS[name](again)
        else:
            resumed.load_state_dict(saved[1])
    assert walk(again, resumed, 3) == expected


def test_loaded_ratios_are_those_of_the_saved_scheduler() -> None:
    saved = PolicyLR(optimizer(0.5, 0.125), "poly_decay", decay_steps=4).state_dict()
    made = optimizer(0.5, 0.5)
    scheduler = PolicyLR(made, "poly_decay", decay_steps=4)
    assert scheduler.get_last_lr() == [0.5, 0.5]
    scheduler.load_state_dict(saved)
    assert rates_of(made) == scheduler.get_last_lr() == [0.5, 0.125]
    made.step()
    scheduler.step()
    assert rates_of(made) == [0.375, 0.09375]


@pytest.mark.parametrize(
    "damage",
    [
        {"base_lrs": [0.5, 0.5]},
        {"more": 1},
    ],
    ids=str,
)
def test_a_damaged_state_is_refused_and_nothing_is_loaded(damage: dict) -> None:
    scheduler = PolicyLR(optimizer(0.5), "poly_decay", decay_steps=4)
    before = scheduler.state_dict()
    with pytest.raises(ValueError):
        scheduler.load_state_dict({**before, **damage})
    assert scheduler.state_dict() == before


@pytest.mark.parametrize(
    ("policy", "arguments", "error"),
    [
        ("pol_decay", {}, ValueError),
        ("poly_decay", {"decay_step": 4}, ValueError),
        ("poly_decay", {}, ValueError),
        ("poly_decay", {"decay_steps": 0}, ValueError),
        ("poly_decay", {"decay_steps": 4, "lr": 1.0, "learning_rate": 1.0}, TypeError),
        (3, {}, ValueError),
        (lambda: 0.1, {}, TypeError),
        (lambda step: 0.1, {"decay_steps": 4}, TypeError),
        (lambda step: math.nan, {}, ValueError),
    ],
)
def test_bad_arguments_are_refused_and_no_rate_changes(
    policy: Any, arguments: dict[str, Any], error: type[Exception]
) -> None:
    made = optimizer(0.5)
    with pytest.raises(error):
        PolicyLR(made, policy, **arguments)
    assert rates_of(made) == [0.5]


def test_a_step_that_is_refused_is_not_counted() -> None:
    made = optimizer(0.5)
    scheduler = PolicyLR(made, lambda step: 0.5 if step < 2 else math.nan)
    made.step()
    scheduler.step()
    before = scheduler.state_dict()
    with pytest.raises(ValueError):
        scheduler.step()
    made.add_param_group({"params": [Parameter(torch.ones(2))]})
    with pytest.raises(ValueError):
        scheduler.step(1)
    assert scheduler.state_dict() == before
    assert rates_of(made) == [0.5, 0.1]


def test_the_wrong_order_of_steps_is_a_warning() -> None:
    scheduler = PolicyLR(optimizer(0.5), "poly_decay", decay_steps=4)
    with pytest.warns(UserWarning):
        scheduler.step()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_step_on_the_gpu_has_its_rate_there() -> None:
    step = torch.tensor(7, device="cuda")
    rate = lr_policies.poly_decay(step, 0.1, 10)
    assert rate.device == step.device
    assert float(rate) == lr_policies.poly_decay(7, 0.1, 10)
