"""``optimize_loss`` of a model that is frozen, copied or converted after the call."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from lockstep import pytorch as ls
from lockstep.pytorch.tests.subjects import ALL


def test_what_is_frozen_at_the_call_follows_only_if_it_was_named() -> None:
    for named in (False, True):
        model = nn.Linear(2, 1)
        model.bias.requires_grad_(False)
        step = ls.optimize_loss(
            lambda model=model: model(torch.ones(2)).sum(),
            "SGD",
            {},
            lambda step: 0.5,
            var_list=list(model.named_parameters()) if named else None,
            model=model,
        )
        start = model.bias.item()
        step()
        assert model.bias.item() == start
        model.bias.requires_grad_(True)
        step()
        assert (model.bias.item() != start) == named


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def loss(self) -> torch.Tensor:
        return self.layer(torch.ones(2)).sum()

    def half_loss(self) -> torch.Tensor:
        return self.layer(torch.ones(2).half()).float().square().sum()


@pytest.mark.parametrize("iter_size", [1, 2])
def test_a_copy_whose_loss_is_the_originals_says_so(iter_size) -> None:
    model = Regression()
    options = {"model": model, "iter_size": iter_size}
    step = ls.optimize_loss(
        lambda: model.loss(), "Adam", {}, lambda step: 0.5, **options
    )
    twin = copy.deepcopy(step)
    told = "loss of a deepcopy may still be that of the original model: set step.loss"
    with pytest.raises(ValueError, match=told):
        for _ in range(iter_size):
            twin()
    weight, bias = twin.parameters
    twin.loss = lambda: (weight.sum() + bias).sum()
    before = weight.clone(), model.layer.weight.clone()
    for _ in range(iter_size):
        twin()
    assert not torch.equal(weight, before[0])
    assert torch.equal(model.layer.weight, before[1])


def test_a_copy_has_the_model_whose_method_is_the_loss() -> None:
    model = Regression()
    step = ls.optimize_loss(model.loss, "Adam", {}, lambda step: 0.5, model=model)
    twin = copy.deepcopy(step)
    before = model.layer.weight.clone()
    twin()
    assert torch.equal(model.layer.weight, before)
    assert not torch.equal(twin.parameters[0], before)


@pytest.mark.parametrize("conversion", ["half", "float"])
def test_a_model_that_is_converted_after_the_call_is_refused(conversion) -> None:
    model = nn.Linear(2, 1)
    if conversion == "float":
        model.half()
    step = ls.optimize_loss(
        lambda: model(torch.ones(2, dtype=model.weight.dtype)).float().sum(),
        "SGD",
        {},
        lambda step: 0.5,
        model=model,
        dtype="mixed",
    )
    step()
    getattr(model, conversion)()
    before = model.weight.clone()
    with pytest.raises(TypeError, match="convert the model first"):
        step()
    assert torch.equal(model.weight, before)
    assert step.global_step == 1


def with_masters(parameters, name: str) -> ls.MixedPrecisionOptimizerWrapper:
    return ls.MixedPrecisionOptimizerWrapper(ALL[name](parameters), 8.0)


@pytest.mark.parametrize("passed", ["nothing", "model", "list", "masters", "maker"])
@pytest.mark.parametrize("name", ["SGD", "Adam fused"])
def test_an_optimizer_with_masters_trains_as_with_mixed(passed, name) -> None:
    model, other = Regression().half(), Regression().half()
    other.load_state_dict(model.state_dict())
    optimizer = with_masters(model.named_parameters(), name)
    options = {
        "nothing": {},
        "model": {"model": model},
        "list": {"var_list": model.named_parameters()},
        "masters": {"var_list": list(optimizer.master_params())},
        "maker": {"model": model},
    }[passed]
    if passed == "maker":
        model.load_state_dict(other.state_dict())
        optimizer = lambda parameters, lr: with_masters(parameters, name)  # noqa: E731
    step = ls.optimize_loss(model.half_loss, optimizer, None, 0.01, **options)
    expected = ls.optimize_loss(
        other.half_loss,
        lambda parameters, lr: ALL[name](parameters),
        None,
        0.01,
        model=other,
        dtype="mixed",
        loss_scaling=8.0,
    )
    for _ in range(3):
        assert torch.equal(step(), expected())
    assert torch.equal(model.layer.weight, other.layer.weight)
    assert step.names[0] in ("layer.weight", "param_groups[0]['params'][0]")
