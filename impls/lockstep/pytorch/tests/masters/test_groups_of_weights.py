"""Laws: groups hold the model's parameters, and a weight is its rounded master."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import Parameter

from lockstep.errors import UnsupportedError
from lockstep.pytorch import MixedPrecisionOptimizerWrapper
from lockstep.pytorch.tests.masters.models import (
    assert_same,
    everyone,
    everything,
    halves,
    loss_of,
    mixed,
    some,
    train,
    wrapped,
)
from lockstep.pytorch.tests.subjects import batches


def assert_weights_are_rounded_masters(model, optimizer):
    for name, weight in model.named_parameters():
        assert torch.equal(optimizer.master(weight).to(weight.dtype), weight), name


def assert_groups_are_the_models(model, optimizer):
    listed = [p for group in optimizer.param_groups for p in group["params"]]
    assert set(map(id, listed)) == set(map(id, model.parameters()))
    assert {id(key) for key in optimizer.state} <= set(map(id, model.parameters()))


@halves
@everyone
def test_a_weight_is_its_rounded_master_after_whatever_happens(name, dtype):
    model = mixed(dtype)
    optimizer = wrapped(model, name)
    saved = copy.deepcopy(optimizer.state_dict())
    added = Parameter(torch.ones(2, dtype=dtype))
    for act in (
        lambda: train(model, optimizer, "+a!0b"),
        lambda: optimizer.load_state_dict(saved),
        lambda: train(model, optimizer, "+"),
        lambda: optimizer.add_param_group({"params": [("added", added)]}),
        lambda: optimizer.minimize(lambda: loss_of(model, torch.ones(2, 3))),
        optimizer.state_dict,
    ):
        act()
        assert_weights_are_rounded_masters(model, optimizer)
    model.register_parameter("added", added)
    assert_groups_are_the_models(model, optimizer)


class Averaged(torch.optim.SGD):
    """Swaps the weights for their average, as schedule-free optimizers do."""

    @torch.no_grad()
    def eval(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(0.5)

    @torch.no_grad()
    def train(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(2)


@halves
def test_eval_and_train_of_the_inner_optimizer_reach_the_weights_at_once(dtype):
    model = mixed(dtype)
    optimizer = MixedPrecisionOptimizerWrapper(Averaged(model.parameters(), lr=0.1))
    train(model, optimizer, "+")
    before = everything(model, optimizer)
    optimizer.eval()
    assert_weights_are_rounded_masters(model, optimizer)
    assert torch.equal(optimizer.master(model.a.weight), before["a.weight master"] / 2)
    optimizer.train()
    assert_same(everything(model, optimizer), before)
    with optimizer.on_masters():
        optimizer.inner_optimizer.eval()
    assert_weights_are_rounded_masters(model, optimizer)


class Lookahead(torch.optim.Optimizer):
    """Every second step the weights go half of the way back to slow ones."""

    def __init__(self, inner, factor=0.5):
        self.inner, self.factor, self.steps = inner, factor, 0
        self.slow = [p.detach().clone() for p in self.parameters()]
        super().__init__(list(self.parameters()), {})

    def parameters(self):
        return [p for group in self.inner.param_groups for p in group["params"]]

    @torch.no_grad()
    def step(self, closure=None):
        self.inner.step()
        self.steps += 1
        if self.steps % 2 == 0:
            for slow, parameter in zip(self.slow, self.parameters(), strict=True):
                slow.lerp_(parameter, self.factor)
                parameter.copy_(slow)


@halves
def test_what_a_wrapper_around_writes_is_the_new_master(dtype):
    model = mixed(dtype)
    optimizer = wrapped(model, "SGD", None)
    outer = Lookahead(optimizer)
    for inputs in batches(4):
        model.zero_grad()
        loss_of(model, inputs).backward()
        outer.step()
    slow = dict(zip(model.parameters(), outer.slow, strict=True))
    train(model, optimizer, "0")
    for weight, value in slow.items():
        master = optimizer.master(weight)
        assert torch.equal(master.to(weight.dtype), value) and torch.equal(
            weight, value
        )


@halves
@some
def test_clipping_what_the_groups_hold_is_clipping_the_model(name, dtype):
    found = []
    for over in ("groups", "model"):
        model = mixed(dtype)
        optimizer = wrapped(model, name, None)
        for inputs in batches(3):
            optimizer.zero_grad()
            (100 * loss_of(model, inputs)).backward()
            listed = [p for group in optimizer.param_groups for p in group["params"]]
            clipped = listed if over == "groups" else model.parameters()
            torch.nn.utils.clip_grad_norm_(clipped, 0.01)
            optimizer.step()
        found.append(everything(model, optimizer))
    assert_same(*found)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert model.a.weight.grad is not None


@some
def test_the_inner_optimizer_refuses_to_step_by_itself(name):
    model = mixed()
    optimizer = wrapped(model, name)
    train(model, optimizer, "+")
    before = everything(model, optimizer)
    with pytest.raises(UnsupportedError, match="step the wrapper"):
        optimizer.inner_optimizer.step()
    other, twin = copy.deepcopy((model, optimizer))
    with pytest.raises(UnsupportedError, match="step the wrapper"):
        twin.inner_optimizer.step()
    assert_same(everything(model, optimizer), before)
    train(model, optimizer, "+")
    train(other, twin, "+")
    assert_same(everything(model, optimizer), everything(other, twin))


@pytest.mark.parametrize("name", ["SGD momentum", "Adam", "TF1 Adam"])
def test_groups_may_be_changed_between_steps(name):
    """As who freezes layers does, by new lists or in place."""
    model = mixed()
    optimizer = wrapped(model, name)
    train(model, optimizer, "+")
    group = optimizer.param_groups[0]
    everyone_ = list(group["params"])
    group["params"] = everyone_[:2]
    before = everything(model, optimizer)
    train(model, optimizer, "++")
    after = everything(model, optimizer)
    assert torch.equal(after["a.weight"], before["a.weight"])
    assert not torch.equal(after["body.weight"], before["body.weight"])
    group["params"].extend(everyone_[2:])
    train(model, optimizer, "+")
    assert not torch.equal(model.a.weight, before["a.weight"])
    assert_weights_are_rounded_masters(model, optimizer)
    assert_groups_are_the_models(model, optimizer)


def test_a_state_that_is_replaced_or_cleared_is_used():
    model, other = mixed(), mixed()
    optimizer, fresh = wrapped(model), wrapped(other)
    train(model, optimizer, "+")
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        for weight, twin in zip(model.parameters(), other.parameters(), strict=True):
            optimizer.master(weight).copy_(weight)
            fresh.master(twin).copy_(weight)
    optimizer.state.clear()
    train(model, optimizer, "+ab")
    train(other, fresh, "+ab")
    assert_same(everything(model, optimizer), everything(other, fresh))
