"""``optimize_loss`` of a model that is frozen, copied or converted after the call."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from lockstep import pytorch as ls


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
