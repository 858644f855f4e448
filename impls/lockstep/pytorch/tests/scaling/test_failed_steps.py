"""A step that raises may be taken again: each gradient is divided, and once."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from torch.nn import Parameter

from lockstep.errors import UnsupportedError, VarListError
from lockstep.pytorch import (
    AGNCustomGetter,
    AGNOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    mp_regularizer_wrapper,
    optimize_loss,
)
from lockstep.pytorch.base.stack import base_of
from lockstep.pytorch.scaling import scaled_step
from lockstep.pytorch.tensors import foreach
from lockstep.pytorch.tests.masters.models import assert_same, loss_of, mixed
from lockstep.pytorch.tests.subjects import ALL, TwoHeads, batches

SCALE = 24.0
"""No power of two: dividing is rounded."""
INPUTS = next(batches(1))


def halves():
    return TwoHeads().half()


def scaled(opt, **options):
    return MixedPrecisionLossScaleOptimizer(opt, SCALE, **options)


def masters(opt, **options):
    return MixedPrecisionOptimizerWrapper(opt, SCALE, **options)


def rows(opt):
    parameter = opt.param_groups[0]["params"][0]
    return VariableClippingOptimizer(opt, {parameter: [0]}, 0.5)


def worker(opt):
    getter = AGNCustomGetter("cpu")
    getter(opt.param_groups[0]["params"])
    return AGNOptimizer(opt, 1, getter, communication_period=2)


STACKS = {
    "scaled": (TwoHeads, scaled),
    "scaled, clipped": (TwoHeads, lambda opt: scaled(opt, clip_norm=1e6)),
    "multitask around": (TwoHeads, lambda opt: MultitaskOptimizerWrapper(scaled(opt))),
    "multitask inside": (TwoHeads, lambda opt: scaled(MultitaskOptimizerWrapper(opt))),
    "rows inside": (TwoHeads, lambda opt: scaled(rows(opt))),
    "rows around": (TwoHeads, lambda opt: rows(scaled(opt))),
    "masters": (mixed, masters),
    "masters, clipped": (mixed, lambda opt: masters(opt, clip_norm=1e6)),
    "masters of bfloat16": (lambda: mixed(torch.bfloat16), masters),
    "masters of all": (halves, masters),
    "masters, multitask": (mixed, lambda opt: masters(MultitaskOptimizerWrapper(opt))),
}
CAPTURABLE = {
    "scaled": (TwoHeads, lambda opt: scaled(opt, capturable=True)),
    "masters": (mixed, lambda opt: masters(opt, capturable=True)),
}
stacks = pytest.mark.parametrize("stack", STACKS)
names = pytest.mark.parametrize("name", ["SGD momentum", "Adam", "Adam fused"])


def started(stack, name, table=STACKS):
    make, wrap = table[stack]
    model = make()
    return model, wrap(ALL[name](model.named_parameters()))


def backward(model, optimizer):
    optimizer.scale_loss(loss_of(model, INPUTS)).backward()


def out_of_memory(*arguments, **options):
    raise MemoryError


def interrupt(*arguments):
    raise KeyboardInterrupt


def fail_in_look(optimizer):
    """Take a step that fails before any gradient is divided."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("are_surely_finite", "total_norm", "finite_flags"):
            patch.setattr(scaled_step, name, interrupt)
        with pytest.raises(KeyboardInterrupt):
            optimizer.step()


def fail_inside(optimizer, hook=out_of_memory):
    """Take a step in which that of the innermost optimizer fails."""
    handle = base_of(optimizer).register_step_pre_hook(hook)
    with pytest.raises((MemoryError, KeyboardInterrupt)):
        optimizer.step()
    handle.remove()


def fail_as_it_divides(optimizer):
    """Take a step in which the fused rule of Adam fails, which divides too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("torch.optim.adam"), "adam", out_of_memory)
        with pytest.raises(MemoryError):
            optimizer.step()


def everything(model, optimizer):
    """Return weights, masters and state, by name."""
    master = getattr(optimizer, "master", lambda weight: weight)
    found = {}
    for name, weight in model.named_parameters():
        found[name], found[f"{name} master"] = weight, master(weight)
        for key, value in base_of(optimizer).state.get(master(weight), {}).items():
            found[f"{name}/{key}"] = torch.as_tensor(value)
    return {key: value.detach().clone() for key, value in found.items()}


def assert_taken_again(stack, name, fail, table=STACKS):
    """Compare steps that were taken again with those of an optimizer left alone."""
    found = []
    for fails in (False, True):
        model, optimizer = started(stack, name, table)
        for _ in range(2):
            optimizer.zero_grad()
            backward(model, optimizer)
            if fails:
                fail(optimizer)
            optimizer.step()
            assert optimizer.last_step.applied
        found.append(everything(model, optimizer))
    assert_same(*found)


def fail_twice(optimizer):
    fail_in_look(optimizer)
    fail_inside(optimizer)
    fail_inside(optimizer, interrupt)


@stacks
@names
def test_a_failed_step_may_be_taken_again(stack, name):
    copies_only = stack == "masters of all"
    fused = name == "Adam fused" and not copies_only
    assert_taken_again(stack, name, fail_in_look if fused else fail_twice)


def assert_refused_until_cleared(stack, table=STACKS):
    """A fused optimizer divides as it updates: how far it came is not known."""
    found = []
    for fails in (False, True):
        model, optimizer = started(stack, "Adam fused", table)
        backward(model, optimizer)
        if fails:
            fail_as_it_divides(optimizer)
            before = everything(model, optimizer)
            with pytest.raises(UnsupportedError, match=r"a step which failed .*zero_"):
                optimizer.step()
            assert_same(everything(model, optimizer), before)
            optimizer.zero_grad()
            backward(model, optimizer)
        optimizer.step()
        found.append(everything(model, optimizer))
    assert_same(*found)


@pytest.mark.parametrize("stack", ["scaled", "masters", "multitask around"])
def test_a_fused_step_that_failed_is_refused_until_gradients_are_made_anew(stack):
    assert_refused_until_cleared(stack)


@pytest.mark.parametrize("stack", CAPTURABLE)
def test_a_failed_step_on_the_device_is_refused_until_gradients_are_made_anew(stack):
    assert_refused_until_cleared(stack, CAPTURABLE)


@pytest.mark.parametrize("again", [False, True], ids=["step", "unscale_ and step"])
@pytest.mark.parametrize("stack", ["masters", "scaled"])
@names
def test_after_unscaling_by_hand_too(stack, name, again):
    def fail(optimizer):
        optimizer.unscale_()
        fail_inside(optimizer)
        if again:
            optimizer.unscale_()
            with pytest.raises(RuntimeError, match="one unscaling"):
                optimizer.unscale_()

    found = []
    for fails in (False, True):
        model, optimizer = started(stack, name)
        backward(model, optimizer)
        fail(optimizer) if fails else optimizer.unscale_()
        optimizer.step()
        found.append(everything(model, optimizer))
        # Only a step that failed left something behind.
        optimizer.zero_grad()
        backward(model, optimizer)
        optimizer.step()
    assert_same(*found)


class SecondGroupFails(torch.optim.SGD):
    """A fused optimizer that has updated one group when it fails."""

    fails = True

    def _init_group(self, group, *lists):
        if self.fails and group is self.param_groups[1]:
            raise MemoryError
        return super()._init_group(group, *lists)


def in_two_groups(wrap, *dtypes):
    parameters = [Parameter(torch.ones(2, dtype=dtype)) for dtype in dtypes]
    groups = [{"params": [parameter]} for parameter in parameters]
    return parameters, wrap(SecondGroupFails(groups, lr=0.25, fused=True))


@pytest.mark.parametrize("wrap", [scaled, masters])
@pytest.mark.parametrize("capturable", [False, True])
def test_half_an_update_is_refused_until_gradients_are_made_anew(wrap, capturable):
    wrap_it = lambda opt: wrap(opt, capturable=capturable)  # noqa: E731
    parameters, optimizer = in_two_groups(wrap_it, torch.float32, torch.float32)

    def differentiate():
        optimizer.scale_loss(sum(p.sum() for p in parameters)).backward()

    differentiate()
    with pytest.raises(MemoryError):
        optimizer.step()
    optimizer.inner_optimizer.fails = False
    before = [p.tolist() for p in parameters]
    for method in (optimizer.step, optimizer.unscale_):
        with pytest.raises(UnsupportedError, match=r"a step which failed .*zero_grad"):
            method()
    assert [p.tolist() for p in parameters] == before
    optimizer.zero_grad()
    differentiate()
    optimizer.step()
    # The first group has been updated by the step that failed, as without a wrapper.
    assert [p.tolist() for p in parameters] == [[0.5, 0.5], [0.75, 0.75]]


def test_half_an_update_of_masters_is_taken_again_from_the_model_s_gradients():
    """What was divided is the masters' alone."""
    parameters, optimizer = in_two_groups(masters, torch.float16, torch.float16)
    optimizer.scale_loss(sum(p.float().sum() for p in parameters)).backward()
    with pytest.raises(MemoryError):
        optimizer.step()
    assert all(optimizer.master(p).grad is None for p in parameters)
    optimizer.inner_optimizer.fails = False
    optimizer.step()
    assert [p.tolist() for p in parameters] == [[0.5, 0.5], [0.75, 0.75]]


@pytest.mark.parametrize("stack", ["scaled", "masters"])
def test_an_interrupted_division_is_refused_until_gradients_are_made_anew(stack):
    model, optimizer = started(stack, "SGD momentum")
    before = everything(model, optimizer)
    divide = foreach.scale_alike_in_place

    def divide_and_fail(tensors, factor):
        divide(tensors[:1], factor)
        interrupt()

    backward(model, optimizer)
    for method in (optimizer.step, optimizer.unscale_):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(foreach, "scale_alike_in_place", divide_and_fail)
            with pytest.raises(KeyboardInterrupt):
                method()
        with pytest.raises(UnsupportedError, match="a step which failed"):
            optimizer.step()
        optimizer.zero_grad()
        backward(model, optimizer)
    assert_same(everything(model, optimizer), before)
    optimizer.step()
    expected = started(stack, "SGD momentum")
    backward(*expected)
    expected[1].step()
    assert_same(everything(model, optimizer), everything(*expected))


@pytest.mark.parametrize("stack", ["masters of all", "scaled"])
def test_a_further_backward_adds_to_gradients_that_still_hold_the_scale(stack):
    found = []
    for fails in (False, True):
        model, optimizer = started(stack, "Adam fused")
        for part in range(2):
            backward(model, optimizer)
            if fails and not part:
                fail_in_look(optimizer)
        optimizer.step()
        found.append(everything(model, optimizer))
    assert_same(*found)


@pytest.mark.parametrize("stack", ["masters", "scaled"])
def test_a_further_backward_onto_divided_gradients_is_refused(stack):
    model, optimizer = started(stack, "Adam")
    before = everything(model, optimizer)
    backward(model, optimizer)
    fail_inside(optimizer)
    scaled_loss = optimizer.scale_loss(loss_of(model, INPUTS))
    scaled_loss.backward()
    with pytest.raises(UnsupportedError, match="a step which failed"):
        optimizer.step()
    assert_same(everything(model, optimizer), before)


@pytest.mark.parametrize("clear", ["before", "after", "module"])
@pytest.mark.parametrize("stack", ["masters", "scaled"])
@names
def test_cleared_gradients_begin_again_in_any_order(stack, name, clear):
    """zero_grad may come between scale_loss and backward."""
    found = []
    for fails in (False, True):
        model, optimizer = started(stack, name)
        if fails:
            backward(model, optimizer)
            fail_inside(optimizer)
        if clear == "before":
            optimizer.zero_grad()
        elif clear == "module":
            model.zero_grad()
        loss = optimizer.scale_loss(loss_of(model, INPUTS))
        if clear == "after":
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(everything(model, optimizer))
    assert_same(*found)


@stacks
def test_after_zero_grad_gradients_of_ones_own_are_unscaled(stack):
    """The scale that survives a step does not survive its gradients."""
    name, found = "Adam fused", []
    for fails in (False, True):
        model, optimizer = started(stack, name)
        if fails:
            backward(model, optimizer)
            fail_in_look(optimizer)
            fail_inside(optimizer)
            optimizer.zero_grad()
        loss_of(model, INPUTS).backward()
        optimizer.step()
        found.append(everything(model, optimizer))
    assert_same(*found)


@pytest.mark.parametrize("stack", ["masters", "scaled"])
def test_pairs_that_hold_the_scale_may_be_applied_again(stack):
    found = []
    for fails in (False, True):
        model, optimizer = started(stack, "Adam")
        parameters = list(model.parameters())
        loss = optimizer.scale_loss(loss_of(model, INPUTS))
        gradients = torch.autograd.grad(loss, parameters)
        pairs = list(zip(gradients, parameters, strict=True))
        if fails:
            handle = base_of(optimizer).register_step_pre_hook(out_of_memory)
            with pytest.raises(MemoryError):
                optimizer.apply_gradients(pairs)
            handle.remove()
        optimizer.apply_gradients(pairs)
        found.append(everything(model, optimizer))
    assert_same(*found)


@pytest.mark.parametrize("stack", ["masters", "scaled"])
def test_a_scaled_loss_may_be_differentiated_again(stack):
    model, optimizer = started(stack, "Adam")
    expected = optimizer.compute_gradients(lambda: loss_of(model, INPUTS))
    loss = optimizer.scale_loss(loss_of(model, INPUTS))
    with pytest.raises(VarListError):
        optimizer.compute_gradients(loss, ["body"])
    with pytest.raises(MemoryError):
        optimizer.compute_gradients(out_of_memory)
    pairs = optimizer.compute_gradients(loss)
    for (gradient, _), (same, _) in zip(pairs, expected, strict=True):
        assert torch.equal(gradient, same)


@pytest.mark.parametrize("method", ["step", "unscale_"])
def test_a_penalty_that_fails_leaves_the_gradients_as_they_were(method):
    model, optimizer = started("masters", "Adam")
    fails = [True]

    def penalty(weight):
        if fails:
            raise MemoryError
        return weight.square().sum() * 0

    mp_regularizer_wrapper(penalty)(model.body.weight)
    backward(model, optimizer)
    with pytest.raises(MemoryError):
        getattr(optimizer, method)()
    assert all(optimizer.master(p).grad is None for p in (model.body.weight,))
    fails.clear()
    optimizer.step()
    expected = started("masters", "Adam")
    backward(*expected)
    expected[1].step()
    assert_same(everything(model, optimizer), everything(*expected))


def test_a_worker_inside_may_take_its_step_again():
    found = []
    for fails in (False, True):
        model = TwoHeads()
        optimizer = scaled(worker(ALL["Adam"](list(model.parameters()))))
        for _ in range(2):
            optimizer.zero_grad()
            backward(model, optimizer)
            if fails:
                fail_twice(optimizer)
            optimizer.step()
        found.append(everything(model, optimizer))
    assert_same(*found)


@pytest.mark.parametrize("loss_scaling", [SCALE, "Backoff"])
@pytest.mark.parametrize("iter_size", [1, 2])
def test_optimize_loss_may_take_its_step_again(loss_scaling, iter_size):
    found = []
    for fails in (False, True):
        model = mixed()
        step = optimize_loss(
            lambda model=model: loss_of(model, INPUTS),
            "Adam",
            {},
            lambda step: 0.1,
            list(model.parameters()),
            dtype="mixed",
            loss_scaling=loss_scaling,
            iter_size=iter_size,
        )
        for _ in range(2 * iter_size):
            handle = base_of(step.optimizer).register_step_pre_hook(out_of_memory)
            try:
                if fails:
                    step()
            except MemoryError:
                handle.remove()
                step()
            finally:
                handle.remove()
            if not fails:
                step()
        found.append(everything(model, step.optimizer))
    assert_same(*found)


@pytest.mark.parametrize("by_hand", [False, True], ids=["scaled", "unscale_"])
@pytest.mark.parametrize("stack", ["masters", "masters of all", "masters of bfloat16"])
def test_gradients_that_were_applied_and_hold_the_scale_are_refused(stack, by_hand):
    model, optimizer = started(stack, "Adam")
    backward(model, optimizer)
    if by_hand:
        optimizer.unscale_()
    optimizer.step()
    before = everything(model, optimizer)
    with pytest.raises(UnsupportedError, match="that the last step applied"):
        optimizer.step()
    assert_same(everything(model, optimizer), before)
    # A further scaled loss says what all of them hold.
    if stack == "masters of all":
        backward(model, optimizer)
        optimizer.step()
    for set_to_none in (True, False):
        optimizer.zero_grad(set_to_none)
        loss_of(model, INPUTS).backward()
        optimizer.step()


def test_gradients_without_a_scale_may_be_applied_again():
    model, optimizer = started("masters", "Adam")
    loss_of(model, INPUTS).backward()
    optimizer.step()
    optimizer.step()
    assert optimizer.last_step.applied
