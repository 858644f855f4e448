"""The rate of PolicyLR by its two names, in groups, in states and in its repr."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
from torch.nn import Parameter

from lockstep import reference
from lockstep.messages.schedules.lr_policies import find
from lockstep.pytorch import PolicyLR, lr_policies


def optimizer(*rates: float | None, default: float = 1e-3) -> torch.optim.Optimizer:
    """Return one with a group for each rate, None for the default's."""
    groups = [{"params": [Parameter(torch.ones(2))]} for _ in rates]
    for group, rate in zip(groups, rates, strict=True):
        group.update({} if rate is None else {"lr": rate})
    return torch.optim.SGD(groups, lr=default)


def rates(made: torch.optim.Optimizer) -> list[float]:
    return [group["lr"] for group in made.param_groups]


@pytest.mark.parametrize("name", ["learning_rate", "lr"])
def test_a_given_rate_stands_for_the_default_and_groups_keep_their_share(
    name: str,
) -> None:
    made = optimizer(1e-5, None)
    scheduler = PolicyLR(made, "cosine_decay", decay_steps=1000, **{name: 2e-3})
    assert rates(made) == [pytest.approx(2e-5), pytest.approx(2e-3)]
    made.step()
    scheduler.step(500)
    assert rates(made) == [pytest.approx(1e-5), pytest.approx(1e-3)]


def test_without_a_rate_groups_keep_their_ratio_to_the_first() -> None:
    made = optimizer(1e-5, None)
    PolicyLR(made, "cosine_decay", decay_steps=1000)
    assert rates(made) == [pytest.approx(1e-5), pytest.approx(1e-3)]


def test_a_given_rate_of_groups_that_differ_needs_a_default() -> None:
    made = optimizer(1e-5, 1e-3)
    del made.defaults["lr"]
    with pytest.raises(ValueError, match="PolicyLR: learning_rate: expected a default"):
        PolicyLR(made, "fixed_lr", learning_rate=1e-3)
    assert rates(made) == [1e-5, 1e-3]
    assert "initial_lr" not in made.param_groups[0]


def test_a_given_rate_of_groups_that_are_alike_needs_none() -> None:
    made = optimizer(0.5, 0.5)
    del made.defaults["lr"]
    PolicyLR(made, "fixed_lr", learning_rate=0.125)
    assert rates(made) == [0.125, 0.125]


def test_two_names_for_one_rate_are_one_sentence() -> None:
    made, step = optimizer(0.5), 3
    for call in (
        lambda: PolicyLR(made, "fixed_lr", lr=0.1, learning_rate=0.1),
        lambda: lr_policies.fixed_lr(step, 0.1, lr=0.1),
        lambda: lr_policies.fixed_lr(step, lr=0.1, learning_rate=0.1),
    ):
        with pytest.raises(TypeError, match="expected one rate, got both"):
            call()


def test_policies_take_the_rate_as_lr() -> None:
    expected = lr_policies.poly_decay(3, 0.5, 10)
    assert lr_policies.poly_decay(3, lr=0.5, decay_steps=10) == expected
    made = optimizer(0.5)
    policy = functools.partial(lr_policies.poly_decay, lr=0.5, decay_steps=10)
    scheduler = PolicyLR(made, policy)
    made.step()
    scheduler.step(3)
    assert rates(made) == [expected]


def test_loaded_ratios_are_those_of_the_saved_scheduler() -> None:
    """Group 1 had a quarter of the rate then; the ratios asked for before are gone."""
    saved = PolicyLR(optimizer(0.5, 0.125), "poly_decay", decay_steps=4).state_dict()
    made = optimizer(0.5, 0.5)
    scheduler = PolicyLR(made, "poly_decay", decay_steps=4)
    assert scheduler.get_last_lr() == [0.5, 0.5]
    scheduler.load_state_dict(saved)
    assert scheduler.get_last_lr() == [0.5, 0.125]
    made.step()
    scheduler.step()
    assert rates(made) == [0.375, 0.09375]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({"last_epoch": 2.5}, "expected an int as last_epoch, got 2.5"),
        ({"last_epoch": "3"}, "expected an int as last_epoch, got '3'"),
        ({"_step_count": None}, "expected an int as _step_count, got None"),
        ({"base_lrs": [math.nan]}, "finite rates >= 0 as base_lrs, got nan"),
        ({"base_lrs": [None]}, "finite rates >= 0 as base_lrs, got None"),
    ],
)
def test_a_damaged_state_is_refused_and_nothing_is_loaded(
    damage: dict[str, Any], words: str
) -> None:
    scheduler = PolicyLR(optimizer(0.5), "poly_decay", decay_steps=4)
    before = scheduler.state_dict()
    with pytest.raises(ValueError, match=words):
        scheduler.load_state_dict({**before, **damage})
    assert scheduler.state_dict() == before


def test_one_group_keeps_its_ratio_after_loading() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    made = torch.optim.SGD([{"params": [weight], "lr": 0.25}], lr=0.5)
    scheduler = PolicyLR(made, "poly_decay", learning_rate=0.5, decay_steps=4)
    assert rates(made) == [0.25]
    scheduler.load_state_dict(scheduler.state_dict())
    made.step()
    scheduler.step()
    assert rates(made) == [0.1875]


def test_its_repr_is_one_line_with_the_rate_of_every_group() -> None:
    scheduler = PolicyLR(optimizer(0.5, 0.25), "poly_decay", decay_steps=4)
    expected = (
        "PolicyLR(poly_decay, learning_rate=0.5, decay_steps=4; "
        "step 0, rates 0.5, 0.25)"
    )
    assert repr(scheduler) == expected


def test_the_repr_of_a_callable_is_its_name() -> None:
    def law(step: int) -> float:
        return 0.5

    assert repr(PolicyLR(optimizer(0.5), law)) == "PolicyLR(law; step 0, rates 0.5)"


def test_the_name_that_is_proposed_for_lr_is_learning_rate() -> None:
    calls: list[Any] = [
        lambda: find("poly_decay").bind({"lr": 0.1, "decay_steps": 3}),
        lambda: reference.AdamOptimizer(lr=0.1),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="did you mean 'learning_rate'"):
            call()


@pytest.mark.parametrize("epoch", [-1, 1.5, "1", True], ids=str)
def test_what_is_no_step_is_refused_and_not_counted(epoch: Any) -> None:
    made = optimizer(0.5)
    scheduler = PolicyLR(made, "poly_decay", decay_steps=10)
    made.step()
    with pytest.raises(ValueError, match=r"PolicyLR\.step: .*expected an integer >= 0"):
        scheduler.step(epoch)
    assert scheduler.state_dict()["last_epoch"] == 0
    scheduler.step()
    assert rates(made) == [pytest.approx(0.45)]


def test_a_step_that_fails_is_not_counted() -> None:
    made = optimizer(0.5)
    scheduler = PolicyLR(made, lambda step: 0.5 if step < 1 else float("nan"))
    before = scheduler.state_dict()
    made.step()
    with pytest.raises(ValueError, match="expected a finite rate"):
        scheduler.step()
    made.add_param_group({"params": [Parameter(torch.ones(2))]})
    scheduler._policy = lambda step: 0.25
    with pytest.raises(ValueError, match="expected the 1 parameter groups"):
        scheduler.step()
    assert scheduler.state_dict() == before
    assert rates(made) == [0.5, 1e-3]


@pytest.mark.parametrize("name", ["fixed_lr", "exp_decay"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_the_rate_of_a_policy_may_be_a_tensor(name: str, dtype: torch.dtype) -> None:
    decay = {"decay_steps": 2, "decay_rate": 0.5, "use_staircase_decay": False}
    arguments: dict[str, Any] = decay if name == "exp_decay" else {}
    seen = []
    for rate in (torch.tensor(2, dtype=dtype), 2.0):
        made = optimizer(0.5)
        policy = functools.partial(getattr(lr_policies, name), lr=rate, **arguments)
        scheduler = PolicyLR(made, policy)
        made.step()
        scheduler.step()
        seen.append(rates(made))
    assert seen[0] == seen[1]
