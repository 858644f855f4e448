"""Masters on PyTorch: groups, hooks, schedulers and other wrappers."""

from __future__ import annotations

import operator
import warnings

import pytest
import torch
from torch.optim import lr_scheduler

from lockstep.pytorch import (
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.pytorch.tests.masters.models import (
    everything,
    loss_of,
    mixed,
    some,
    train,
    wrapped,
)
from lockstep.pytorch.tests.subjects import TORCH, TwoHeads


def test_the_groups_are_the_wrapped_optimizers_over_the_models_parameters():
    model = mixed()
    groups = [
        {"params": list(model.body.parameters()), "lr": 0.5},
        {"params": [*model.a.parameters(), *model.b.parameters()]},
    ]
    sgd = torch.optim.SGD(groups, lr=0.25)
    optimizer = MixedPrecisionOptimizerWrapper(sgd, 4)
    assert optimizer.param_groups is sgd.param_groups
    listed = [p for group in sgd.param_groups for p in group["params"]]
    assert all(map(operator.is_, listed, model.parameters()))
    assert all(p.dtype == torch.float32 for p in optimizer.master_params())
    before = everything(model, optimizer)
    train(model, optimizer, "+")
    after = everything(model, optimizer)
    for name, rate in ("body.weight", 0.5), ("a.weight", 0.25):
        moved = before[f"{name} master"] - after[f"{name} master"]
        gradient = model.get_parameter(name).grad.float() / 4
        torch.testing.assert_close(moved, rate * gradient)


def test_a_group_that_is_added_has_masters():
    model = mixed()
    optimizer = MixedPrecisionOptimizerWrapper(TORCH["SGD"](model.body.parameters()), 2)
    optimizer.add_param_group({"params": list(model.a.parameters()), "lr": 0.5})
    train(model, optimizer, "++")
    assert optimizer.master(model.a.weight).dtype == torch.float32
    assert not torch.equal(model.a.weight, TwoHeads().half().a.weight)
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [model.a.weight]})
    assert len(optimizer.param_groups) == 2


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_clears_the_models_gradients_and_the_masters(set_to_none):
    model = mixed()
    optimizer = wrapped(model)
    loss_of(model, torch.ones(2, 3)).backward()
    optimizer.unscale_()
    optimizer.zero_grad(set_to_none)
    grads = [p.grad for p in model.parameters()]
    assert all(g is None if set_to_none else not g.any() for g in grads)
    assert optimizer.master(model.a.weight).grad is None


@some
def test_a_scheduler_drives_the_rate(name):
    model = mixed()
    optimizer = wrapped(model, name)
    scheduler = lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, optimizer, "+")
        scheduler.step()
    assert optimizer.inner_optimizer.param_groups[0]["lr"] == 0.05


def test_other_wrappers_work_inside():
    model = mixed()
    sgd = TORCH["SGD momentum"](model.named_parameters())
    rows = VariableClippingOptimizer(sgd, {"a.weight": [1]}, 0.125)
    optimizer = MixedPrecisionOptimizerWrapper(MultitaskOptimizerWrapper(rows), 8)
    train(model, optimizer, "++")
    assert (model.a.weight.float().norm(dim=1) <= 0.1251).all()
    assert optimizer.get_name() == "VariableClipping-MP"


def test_an_adafactor_that_has_trained_half_precision_goes_on_in_float32():
    """Its state has the dtype of the weights, but the means of rows and columns."""
    weight = torch.nn.Parameter(torch.ones(3, 2, dtype=torch.bfloat16))
    adafactor = torch.optim.Adafactor([weight], lr=0.1)
    weight.grad = torch.ones_like(weight)
    adafactor.step()
    half = weight.detach().clone()
    optimizer = MixedPrecisionOptimizerWrapper(adafactor)
    slots = adafactor.state[optimizer.master(weight)]
    assert slots["row_var"].dtype == slots["col_var"].dtype == torch.float32
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert (weight < half).all()
