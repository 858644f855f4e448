"""A step that raises is refused until its gradients are gone, or a state is loaded."""

from __future__ import annotations

import copy

import pytest
import torch

from lockstep.errors import UnsupportedError
from lockstep.pytorch import (
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
)
from lockstep.pytorch.tests.masters.models import assert_same, loss_of, mixed
from lockstep.pytorch.tests.subjects import TwoHeads, batches

SCALE = 24.0
"""No power of two: dividing is rounded."""
INPUTS = next(batches(1))


class Fussy(torch.optim.SGD):
    """Raises in its step, after it has updated the first group."""

    fails = False

    def step(self, closure=None):
        if not self.fails:
            return super().step()
        groups = self.param_groups
        try:
            self.param_groups = groups[:1]
            super().step()
        finally:
            self.param_groups = groups
        raise MemoryError


def scaled(opt):
    return MixedPrecisionLossScaleOptimizer(opt, SCALE)


def masters(opt):
    return MixedPrecisionOptimizerWrapper(opt, SCALE)


STACKS = {
    "scaled": (TwoHeads, scaled),
    "multitask around": (TwoHeads, lambda opt: MultitaskOptimizerWrapper(scaled(opt))),
    "multitask inside": (TwoHeads, lambda opt: scaled(MultitaskOptimizerWrapper(opt))),
    "masters": (mixed, masters),
    "masters of bfloat16": (lambda: mixed(torch.bfloat16), masters),
    "masters, multitask": (mixed, lambda opt: masters(MultitaskOptimizerWrapper(opt))),
}
stacks = pytest.mark.parametrize("stack", STACKS)
kernels = pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])


def started(stack, fused=False):
    make, wrap = STACKS[stack]
    model = make()
    groups = [
        {"params": list(model.body.parameters())},
        {"params": [*model.a.parameters(), *model.b.parameters()]},
    ]
    fussy = Fussy(groups, lr=0.1, momentum=0.9, fused=fused)
    return model, fussy, wrap(fussy)


def backward(model, optimizer):
    optimizer.scale_loss(loss_of(model, INPUTS)).backward()


def fail(fussy, optimizer):
    fussy.fails = True
    with pytest.raises(MemoryError):
        optimizer.step()
    fussy.fails = False


def weights_of(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@stacks
@kernels
@pytest.mark.parametrize("by_hand", [False, True], ids=["step", "unscale_"])
def test_it_is_refused_until_the_gradients_are_gone(stack, fused, by_hand):
    model, fussy, optimizer = started(stack, fused)
    backward(model, optimizer)
    if by_hand:
        optimizer.unscale_()
    fail(fussy, optimizer)
    before = weights_of(model)
    for _ in range(2):
        with pytest.raises(UnsupportedError):
            optimizer.step()
    backward(model, optimizer)
    with pytest.raises(UnsupportedError):
        optimizer.step()
    assert_same(weights_of(model), before)
    optimizer.zero_grad()
    backward(model, optimizer)
    optimizer.step()
    assert optimizer.last_step.applied


@stacks
@pytest.mark.parametrize("clear", ["optimizer", "model", "scaled before"])
def test_then_a_step_is_a_step(stack, clear):
    """From the weights as the failed step left them, to the bit."""
    found = []
    for fails in (True, False):
        model, fussy, optimizer = started(stack)
        if fails:
            backward(model, optimizer)
            fail(fussy, optimizer)
            start = copy.deepcopy(model.state_dict()), optimizer.state_dict()
            start = copy.deepcopy(start)
        else:
            model.load_state_dict(start[0])
            optimizer.load_state_dict(start[1])
        if clear == "scaled before":
            scaled_loss = optimizer.scale_loss(loss_of(model, INPUTS))
            model.zero_grad()
            scaled_loss.backward()
        else:
            (optimizer if clear == "optimizer" else model).zero_grad()
            backward(model, optimizer)
        optimizer.step()
        assert optimizer.last_step.applied
        found.append(weights_of(model))
    assert_same(*found)


@stacks
def test_a_loaded_state_begins_again(stack):
    model, fussy, optimizer = started(stack)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    backward(model, optimizer)
    fail(fussy, optimizer)
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert_same(weights_of(model), dict(saved[0]))


@pytest.mark.parametrize("stack", ["masters", "masters of bfloat16"])
def test_weights_are_the_rounded_masters_after_a_failed_step(stack):
    model, fussy, optimizer = started(stack)
    before = weights_of(model)
    backward(model, optimizer)
    fail(fussy, optimizer)
    assert not torch.equal(model.body.weight, before["body.weight"])
    for weight in model.parameters():
        assert torch.equal(optimizer.master(weight).to(weight.dtype), weight)


@stacks
def test_given_gradients_may_be_applied_again(stack):
    """They are the caller's, so no failed step has divided them."""
    model, fussy, optimizer = started(stack)
    pairs = optimizer.compute_gradients(lambda: loss_of(model, INPUTS))
    fussy.fails = True
    with pytest.raises(MemoryError):
        optimizer.apply_gradients(pairs)
    fussy.fails = False
    optimizer.apply_gradients(pairs)
    assert optimizer.last_step.applied
    backward(model, optimizer)
    optimizer.step()


@pytest.mark.parametrize("stack", ["scaled", "masters"])
def test_an_error_before_the_update_keeps_the_scale(stack):
    """Such as a hook's: the step may be taken again, and divides once."""
    found = []
    for fails in (True, False):
        model, _, optimizer = started(stack)
        backward(model, optimizer)
        if fails:

            def interrupt(*_):
                raise KeyboardInterrupt

            handle = optimizer.register_step_pre_hook(interrupt)
            with pytest.raises(KeyboardInterrupt):
                optimizer.step()
            handle.remove()
        optimizer.step()
        found.append(weights_of(model))
    assert_same(*found)


@pytest.mark.parametrize("by_hand", [False, True], ids=["scaled", "unscale_"])
def test_applied_gradients_that_hold_the_scale_are_refused(by_hand):
    model, _, optimizer = started("masters")
    backward(model, optimizer)
    if by_hand:
        optimizer.unscale_()
        optimizer.step()
        optimizer.step()
        return
    optimizer.step()
    with pytest.raises(UnsupportedError, match="not applied yet"):
        optimizer.step()
    optimizer.zero_grad()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.step()
