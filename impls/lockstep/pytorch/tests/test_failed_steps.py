"""Steps that raise: nothing is half done, or it is refused afterwards."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import Parameter
from torch.nn.functional import embedding

from lockstep import pytorch as ls
from lockstep.errors import UnsupportedError
from lockstep.pytorch import (
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
)
from lockstep.pytorch.tests.half_models import assert_same, loss_of, mixed
from lockstep.pytorch.tests.subjects import TwoHeads, batches


class Unreliable:
    """Two ranks alike, whose connection fails as long as ``fails``."""

    size, fails = 2, True

    def any(self, flags):
        return flags

    def all_reduce(self, tensors):
        if self.fails:
            raise ConnectionError
        return tensors


class Fussy(torch.optim.SGD):
    """An optimizer that fails as long as ``fails``."""

    fails = True

    def step(self, closure=None):
        if self.fails:
            raise MemoryError
        return super().step(closure)


def step_of(loss, weights, optimizer="SGD", **options):
    given = {} if isinstance(optimizer, str) else None
    return ls.optimize_loss(
        loss, optimizer, given, lambda step: 1.0, weights, **options
    )


def no_answer():
    raise ConnectionError


def test_every_gradient_of_a_failed_step_has_to_be_cleared() -> None:
    weights = [Parameter(torch.ones(20_000)) for _ in range(2)]
    optimizer = MixedPrecisionLossScaleOptimizer(Fussy(weights, lr=1.0), 8.0)
    optimizer.scale_loss((weights[0] + weights[1]).sum()).backward()
    with pytest.raises(MemoryError):
        optimizer.step()
    weights[0].grad, optimizer.inner_optimizer.fails = None, False
    with pytest.raises(UnsupportedError, match="after the step that raised"):
        optimizer.step()
    weights[1].grad = None
    optimizer.scale_loss((weights[0] + weights[1]).sum()).backward()
    optimizer.step()
    assert not any(weight.any() for weight in weights)


def test_a_reduction_that_fails_may_be_tried_again() -> None:
    weight, engine = Parameter(torch.zeros(2)), Unreliable()
    options = {"iter_size": 2, "on_horovod": True, "reduction": engine}
    step = step_of(weight.sum, [weight], **options)
    step()
    with pytest.raises(ConnectionError):
        step()
    assert (step.micro_step, step.accumulators[0].tolist()) == (1, [0.5, 0.5])
    assert step.global_step.item() == 0
    assert step.last_step.reason == "accumulated micro-batch 1 of 2"
    engine.fails = False
    step()
    assert weight.tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_clipping_does_not_write_into_sums_that_are_needed_again(sparse) -> None:
    weight, other = Parameter(torch.zeros(2, 1)), Parameter(torch.zeros(1))
    fussy, rows = Fussy([weight, other], lr=1.0), torch.tensor([0, 1])

    def loss(also):
        total = embedding(rows, weight, sparse=sparse).sum() * 8
        return total + other.sum() * 8 if also else total

    step = step_of(loss, None, fussy, iter_size=2, clip_gradients=1.0)
    step(True)
    with pytest.raises(MemoryError):
        step(False)
    kept = [total.to_dense().flatten().tolist() for total in step.accumulators]
    assert (step.micro_step, kept) == (1, [[4.0, 4.0], [4.0]])
    fussy.fails = False
    step(False)
    assert torch.cat([weight.flatten(), other]).tolist() == pytest.approx(
        [-2 / 3, -2 / 3, -1 / 3]
    )


def test_a_flag_that_fails_adds_nothing() -> None:
    weight = Parameter(torch.zeros(2))
    step = step_of(weight.sum, [weight], iter_size=2)
    with pytest.raises(ConnectionError):
        step(skip_update=no_answer)
    assert (step.micro_step, step.accumulators) == (0, [None])


SCALE = 24.0
"""No power of two: dividing is rounded."""
INPUTS = next(batches(1))


class Fussy_failed(torch.optim.SGD):
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
    fussy = Fussy_failed(groups, lr=0.1, momentum=0.9, fused=fused)
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
    with pytest.raises(UnsupportedError):
        backward(model, optimizer)
    loss_of(model, INPUTS).backward()
    with pytest.raises(UnsupportedError):
        optimizer.step()
    assert_same(weights_of(model), before)
    optimizer.zero_grad()
    backward(model, optimizer)
    optimizer.step()
    assert optimizer.last_step.applied


@stacks
@pytest.mark.parametrize("clear", ["optimizer", "model", "zeros", "scaled before"])
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
            cleared = optimizer if clear == "optimizer" else model
            cleared.zero_grad(set_to_none=clear != "zeros")
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


def test_the_mark_of_a_failure_is_not_bound_to_the_first_parameter():
    first, second = (Parameter(torch.ones(2)) for _ in range(2))
    fussy = Fussy([first, second], lr=1.0)
    optimizer = MixedPrecisionLossScaleOptimizer(fussy, SCALE)
    optimizer.scale_loss(second.sum()).backward()
    with pytest.raises(MemoryError):
        optimizer.step()
    first.grad = torch.ones(2)
    fussy.fails = False
    with pytest.raises(UnsupportedError, match="step that raised"):
        optimizer.step()


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
