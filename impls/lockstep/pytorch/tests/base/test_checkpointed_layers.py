"""Layers in ``torch.utils.checkpoint`` train, or a warning names their parameters."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from lockstep.pytorch import (
    AdamOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MultitaskOptimizerWrapper,
    optimize_loss,
)

REENTRANT = "expected torch.utils.checkpoint with use_reentrant=False, .* body.weight"


class Net(nn.Module):
    """A checkpointed body, whose inputs require a gradient, and two heads."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(5)
            self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 1)
            self.idle = nn.Linear(4, 1)

    def loss(self, use_reentrant):
        inputs = torch.ones(2, 3, requires_grad=True)
        hidden = checkpoint(self.body, inputs, use_reentrant=use_reentrant)
        return self.head(hidden).square().sum()


def minimizing(wrap, model, use_reentrant):
    """Return a function that trains one step by ``minimize``."""
    optimizer = wrap(torch.optim.SGD(model.named_parameters(), lr=0.1))
    return lambda: optimizer.minimize(lambda: model.loss(use_reentrant))


def in_one_call(model, use_reentrant):
    """Return a training step that trains one step."""
    return optimize_loss(
        lambda: model.loss(use_reentrant), "Adam", {}, 0.1, model=model
    )


def in_one_fused_call(model, use_reentrant):
    """Return a training step whose optimizer unscales while it updates."""
    return optimize_loss(
        lambda: model.loss(use_reentrant),
        torch.optim.SGD,
        {"fused": True},
        0.1,
        model=model,
        dtype="mixed",
        loss_scaling=8.0,
    )


STEPS = {
    "multitask": lambda *how: minimizing(MultitaskOptimizerWrapper, *how),
    "scaled": lambda *how: minimizing(
        lambda opt: MixedPrecisionLossScaleOptimizer(opt, 8.0), *how
    ),
    "optimize_loss": in_one_call,
    "optimize_loss, fused": in_one_fused_call,
}
steps = pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)


@steps
def test_a_reentrant_checkpoint_causes_one_warning(make) -> None:
    model = Net()
    step, before = make(model, True), model.body.weight.detach().clone()
    with pytest.warns(UserWarning, match=REENTRANT):
        step()
    assert torch.equal(model.body.weight, before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step()


@steps
def test_another_checkpoint_trains_without_a_warning(make) -> None:
    model = Net()
    step, before = make(model, False), model.body.weight.detach().clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step()
    assert not torch.equal(model.body.weight, before)


def test_a_frozen_body_needs_no_warning() -> None:
    model = Net()
    model.body.requires_grad_(False)
    trained = [*model.body.parameters(), *model.head.parameters()]
    optimizer = AdamOptimizer(trained, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.minimize(lambda: model.loss(True))
