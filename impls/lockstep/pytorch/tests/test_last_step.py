"""``last_step`` is never None and never old; skipped steps are counted once."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch.nn import Parameter

from lockstep.interface import NO_GRADIENTS, NO_STEP
from lockstep.pytorch import (
    AGNCustomGetter,
    AGNOptimizer,
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.scalers import ScaledStepReport


def scaled(opt, scale=8.0, **options):
    scale = DynamicLossScale(scale, 2)
    return MixedPrecisionLossScaleOptimizer(opt, scale, **options)


def masters(opt, scale=8.0, **options):
    return MixedPrecisionOptimizerWrapper(opt, DynamicLossScale(scale, 2), **options)


def rows(opt):
    return VariableClippingOptimizer(opt, {"w": [1]}, max_norm=10.0)


def agn(opt):
    getter = AGNCustomGetter("cpu")
    getter([p for group in opt.param_groups for p in group["params"]])
    return AGNOptimizer(opt, 1, getter, communication_period=2)


STACKS = {
    "multitask": (MultitaskOptimizerWrapper,),
    "rows": (rows,),
    "scaled": (scaled,),
    "masters": (masters,),
    "agn": (agn,),
    "multitask around scaled": (MultitaskOptimizerWrapper, scaled),
    "scaled around multitask": (scaled, MultitaskOptimizerWrapper),
    "masters around all": (masters, rows, MultitaskOptimizerWrapper),
    "agn around two": (agn, MultitaskOptimizerWrapper, rows),
    "multitask around three": (MultitaskOptimizerWrapper, agn, rows),
    "rows around scaled": (rows, scaled),
}
stacks = pytest.mark.parametrize("stack", STACKS)


def started(stack):
    weight = Parameter(torch.ones(2, 2))
    optimizer = torch.optim.SGD([("w", weight)], lr=0.1)
    for wrap in reversed(STACKS[stack]):
        optimizer = wrap(optimizer)
    return weight, optimizer


def levels(optimizer):
    while "inner_optimizer" in vars(optimizer):
        yield optimizer
        optimizer = optimizer.inner_optimizer


@stacks
def test_before_the_first_step_every_level_has_a_report(stack):
    _, optimizer = started(stack)
    assert [level.last_step for level in levels(optimizer)] == [
        NO_STEP for _ in STACKS[stack]
    ]


@stacks
def test_after_a_step_without_gradients_no_level_has_an_old_report(stack):
    weight, optimizer = started(stack)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert all(level.last_step.applied for level in levels(optimizer))
    for _ in range(2):
        optimizer.zero_grad()
        optimizer.step()
        assert {level.last_step for level in levels(optimizer)} == {NO_GRADIENTS}
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert all(level.last_step.applied for level in levels(optimizer))


@pytest.mark.parametrize(
    ("wrap", "options"), [(scaled, {}), (scaled, {"capturable": True}), (masters, {})]
)
def test_an_applied_step_reports_parameters_without_gradients(wrap, options):
    """Not a frozen one, and as they were when the step was taken."""
    present, absent, frozen = (Parameter(torch.ones(2)) for _ in range(3))
    frozen.requires_grad_(False)
    named = {"present": present, "absent": absent, "frozen": frozen}
    sgd = torch.optim.SGD(named.items(), lr=0.5, fused=True)
    optimizer = wrap(sgd, **options)
    optimizer.scale_loss(present.sum()).backward()
    optimizer.step()
    absent.grad = torch.ones(2)
    report = optimizer.last_step
    assert report.applied and report.skipped == ("absent",)
    assert report.reason == "finite, 1 absent; loss scale 8"
    optimizer.zero_grad()
    optimizer.scale_loss((present + absent).sum()).backward()
    optimizer.step()
    assert optimizer.last_step.skipped == ()


def test_what_multitask_leaves_out_is_not_an_old_report_inside():
    weight, optimizer = started("multitask around three")
    for gradient in (1.0, 0.0):
        weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
    outer, *inner = levels(optimizer)
    assert outer.last_step.reason == "of 1 gradients 1 all zero"
    assert {level.last_step for level in inner} == {NO_GRADIENTS}
    rounds = torch.tensor(0)
    optimizer.apply_gradients([(torch.zeros_like(weight), weight)], rounds)
    # The one local step was half a round, and zeros are none.
    assert rounds == 0


def test_a_skip_that_nobody_asked_about_does_not_hold_back_a_later_step():
    weight, optimizer = started("multitask around scaled")
    weight.grad = torch.full_like(weight, torch.inf)
    optimizer.step()
    steps = torch.tensor(0)
    optimizer.apply_gradients([(torch.zeros_like(weight), weight)], steps)
    assert steps == 1


def test_a_skipped_step_reports_nothing_of_the_wrapper_inside():
    weight, optimizer = started("scaled around multitask")
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert "nonzero" in optimizer.last_step.reason
    weight.grad = torch.full_like(weight, torch.nan)
    optimizer.step()
    assert optimizer.last_step.reason == ("skipped, not finite: w; loss scale 8 -> 4")
    assert optimizer.last_step.skipped == ("w",)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("value", [0.0, torch.nan])
def test_a_master_is_reported_under_the_name_of_its_weight(value, named):
    weight, other = Parameter(torch.ones(2).half()), Parameter(torch.ones(2))
    params = [("w", weight), ("b", other)] if named else [weight, other]
    inner = MultitaskOptimizerWrapper(torch.optim.SGD(params, lr=0.1))
    optimizer = masters(inner)
    weight.grad, other.grad = torch.full_like(weight, value), torch.zeros(2)
    optimizer.step()
    places = "param_groups[0]['params'][0]", "param_groups[0]['params'][1]"
    names = ("w", "b") if named else places
    assert optimizer.last_step.skipped == names
    if value != 0:
        assert optimizer.last_step.nonfinite == names[:1]


SCALED = {
    "scaled": scaled,
    "masters": masters,
    "scaled capturable": lambda opt, **how: scaled(opt, capturable=True, **how),
}
everyone = pytest.mark.parametrize("kind", SCALED)
PATTERN = "+!0!!0+!0"


def counted(kind, **options):
    weight = Parameter(torch.ones(2, 2))
    optimizer = torch.optim.SGD([("w", weight)], lr=0.1, fused=True)
    return weight, SCALED[kind](optimizer, **options)


def run(weight, optimizer, pattern):
    """Take a step a letter: + finite, ! an overflow, 0 without gradients."""
    numbers = []
    for letter in pattern:
        optimizer.zero_grad()
        if letter != "0":
            value = torch.inf if letter == "!" else 0.5
            weight.grad = torch.full_like(weight, value)
        optimizer.step()
        numbers.append((optimizer.skipped_steps, optimizer.skipped_in_a_row))
    return numbers


@everyone
def test_skipped_steps_are_counted_once(kind):
    found = run(*counted(kind), PATTERN)
    # In a row: a step without gradients neither adds to them nor ends the row.
    expected = [(0, 0), (1, 1), (1, 1), (2, 2), (3, 3), (3, 3), (3, 0), (4, 1), (4, 1)]
    assert found == expected


@everyone
def test_a_step_without_gradients_after_an_overflow_is_no_overflow(kind):
    weight, optimizer = counted(kind)
    run(weight, optimizer, "!")
    assert optimizer.last_step.nonfinite == ("w",)
    run(weight, optimizer, "0")
    report = optimizer.last_step
    assert isinstance(report, ScaledStepReport)
    assert report == NO_GRADIENTS and report.nonfinite == ()
    assert optimizer.loss_scale == 4


@everyone
@pytest.mark.parametrize("saver", SCALED)
def test_the_counts_are_saved(kind, saver):
    if ("masters" in kind) != ("masters" in saver):
        saver = kind
    saved = counted(saver)
    run(*saved, "!+!!")
    weight, optimizer = counted(kind)
    optimizer.load_state_dict(copy.deepcopy(saved[1].state_dict()))
    assert (optimizer.skipped_steps, optimizer.skipped_in_a_row) == (3, 2)
    assert run(weight, optimizer, "!+") == [(4, 3), (4, 0)]


@everyone
def test_a_saved_state_does_not_count_on(kind):
    weight, optimizer = counted(kind)
    run(weight, optimizer, "!")
    saved = optimizer.state_dict()["param_groups"][0]
    run(weight, optimizer, "!!")
    assert (saved["skipped_steps"], saved["skipped_in_a_row"]) == (1, 1)


@everyone
@pytest.mark.parametrize("patience", [1, 3])
def test_a_stall_is_warned_of_once_until_a_step_is_applied(kind, patience):
    weight, optimizer = counted(kind, scale=1.0, floor_patience=patience)
    found = 0
    for letter in "!!!!!0!+!!!!+!":
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(weight, optimizer, letter)
            _ = optimizer.last_step, optimizer.last_step
        found += len(caught)
    # Rows of 6, 4 and 1 skipped steps.
    assert found == (2 if patience == 3 else 3)


@pytest.mark.parametrize("stack", ["multitask", "rows", "scaled", "masters around all"])
def test_a_group_that_was_removed_since_the_step_is_still_reported(stack):
    first, second = (Parameter(torch.ones(1, 2)) for _ in range(2))
    groups = [{"params": [("w", first)]}, {"params": [("gone", second)]}]
    optimizer = torch.optim.SGD(groups, lr=0.5)
    for wrap in reversed(STACKS[stack]):
        optimizer = wrap(optimizer)
    first.grad, second.grad = torch.ones(1, 2), torch.zeros(1, 2)
    if "scaled" in stack:
        second.grad[0, 0] = torch.inf
    optimizer.step()
    before = optimizer.last_step.reason
    del optimizer.param_groups[1]
    after = optimizer.last_step.reason
    assert after.replace("a removed parameter [1, 2]", "gone") == before


@pytest.mark.parametrize("stack", ["scaled", "masters", "scaled around multitask"])
def test_a_skipped_step_reports_what_was_trained_then(stack):
    weights = [Parameter(torch.ones(2)) for _ in range(4)]
    frozen = weights[1].requires_grad_(False)
    optimizer = torch.optim.SGD([("w", weights[0]), ("frozen", frozen)], lr=0.5)
    optimizer.add_param_group({"params": [("gone", weights[2])]})
    for wrap in reversed(STACKS[stack]):
        optimizer = wrap(optimizer)
    weights[0].grad = torch.full((2,), torch.inf)
    optimizer.step()
    assert optimizer.last_step.skipped == ("w", "gone")
    frozen.requires_grad_()
    del optimizer.param_groups[1]
    optimizer.add_param_group({"params": [("new", weights[3])]})
    assert optimizer.last_step.skipped == ("w", "a removed parameter [2]")
