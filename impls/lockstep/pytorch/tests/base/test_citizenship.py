"""The wrapper is an optimizer of torch in everything that torch does with one."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from torch.optim import Optimizer, lr_scheduler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from lockstep.pytorch import MultitaskOptimizerWrapper
from lockstep.pytorch.tests.subjects import (
    ALL,
    TF1,
    TORCH,
    TwoHeads,
    assert_same_bits,
    snapshot,
    train,
)

everyone = pytest.mark.parametrize("make", ALL.values(), ids=ALL)
some = pytest.mark.parametrize("make", [TORCH["SGD momentum"], TF1["Momentum"]])
SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 1, gamma=0.5),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda k: 1 / (k + 1)),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.2, total_steps=30),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.2, step_size_up=3),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.ConstantLR(o, 0.1, 2), lr_scheduler.ExponentialLR(o, 0.5)],
        [2],
    ),
}


def wrap(make, model, **options):
    """Wrap an optimizer of all parameters of ``model``."""
    return MultitaskOptimizerWrapper(make(model.parameters()), **options)


@everyone
def test_it_is_an_optimizer(make):
    assert isinstance(wrap(make, TwoHeads()), Optimizer)


@everyone
def test_groups_state_and_defaults_are_those_of_the_wrapped_optimizer(make):
    model = TwoHeads()
    wrapper = wrap(make, model)
    inner = wrapper.inner_optimizer
    train(model, wrapper, "+")
    wrapper.load_state_dict(copy.deepcopy(wrapper.state_dict()))
    for name in ("param_groups", "state", "defaults"):
        assert getattr(wrapper, name) is getattr(inner, name)
    wrapper.param_groups = [dict(group) for group in wrapper.param_groups]
    assert inner.param_groups is wrapper.param_groups
    wrapper.param_groups[0]["lr"] = 0.25
    assert inner.param_groups[0]["lr"] == 0.25


@everyone
def test_a_group_that_is_added_is_trained(make):
    model = TwoHeads()
    wrapper = MultitaskOptimizerWrapper(make(model.body.parameters()))
    wrapper.add_param_group({"params": list(model.a.parameters()), "lr": 0.5})
    assert len(wrapper.inner_optimizer.param_groups) == 2
    train(model, wrapper, "++")
    assert not torch.equal(model.a.weight, TwoHeads().a.weight)
    assert torch.equal(model.b.weight, TwoHeads().b.weight)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_clears_the_gradients(set_to_none):
    model = TwoHeads()
    wrapper = wrap(TORCH["SGD"], model)
    model(torch.ones(2, 3), 1.0, 1.0).backward()
    wrapper.zero_grad(set_to_none)
    grads = [parameter.grad for parameter in model.parameters()]
    assert all(g is None if set_to_none else not g.any() for g in grads)


@some
def test_step_hooks_fire_once_with_the_wrapper(make):
    model = TwoHeads()
    wrapper = wrap(make, model)
    seen = []
    wrapper.register_step_pre_hook(lambda opt, *_: seen.append(("before", opt)))
    handle = wrapper.register_step_post_hook(lambda o, *_: seen.append(("after", o)))
    wrapper.inner_optimizer.register_step_pre_hook(lambda o, *_: seen.append(("in", o)))
    expected = [
        ("before", wrapper),
        ("in", wrapper.inner_optimizer),
        ("after", wrapper),
    ]
    train(model, wrapper, "a")
    assert seen == expected
    handle.remove()
    wrapper.minimize(lambda: model(torch.ones(2, 3), 1.0, 1.0))
    assert seen == expected + expected[:2]


def test_hooks_of_all_optimizers_fire_with_the_wrapper_too():
    model, seen = TwoHeads(), []
    wrapper = wrap(TORCH["SGD momentum"], model)
    handles = [
        register_optimizer_step_pre_hook(lambda opt, *_: seen.append(opt)),
        register_optimizer_step_post_hook(lambda opt, *_: seen.append(opt)),
    ]
    try:
        train(model, wrapper, "+")
    finally:
        for handle in handles:
            handle.remove()
    inner = wrapper.inner_optimizer
    assert [id(opt) for opt in seen] == list(map(id, [wrapper, inner, inner, wrapper]))


@some
def test_loading_a_state_calls_no_hook_of_all_optimizers(make):
    model, seen = TwoHeads(), []
    wrapper = wrap(make, model)
    train(model, wrapper, "+")
    saved = wrapper.state_dict()
    handles = [
        register_optimizer_step_pre_hook(lambda opt, *_: seen.append(opt)),
        register_optimizer_step_post_hook(lambda opt, *_: seen.append(opt)),
    ]
    try:
        wrapper.load_state_dict(saved)
    finally:
        for handle in handles:
            handle.remove()
    assert seen == []


def test_a_hook_may_replace_the_closure():
    model, seen = TwoHeads(), []
    wrapper = wrap(TORCH["SGD momentum"], model)
    wrapper.register_step_pre_hook(
        lambda opt, args, kwargs: ((opt, lambda: seen.append(1)), kwargs)
    )
    wrapper.step()
    wrapper.step(lambda: seen.append(2))
    assert seen == [1, 1]


def test_a_profiler_sees_the_step_of_the_wrapper():
    model = TwoHeads()
    wrapper = wrap(TORCH["SGD momentum"], model)
    with torch.profiler.profile() as profiler:
        train(model, wrapper, "+")
    ranges = {event.key for event in profiler.key_averages()}
    assert "Optimizer.step#MultitaskOptimizerWrapper.step" in ranges


@some
def test_state_dict_hooks_fire_once_with_the_wrapper_and_may_replace_it(make):
    model = TwoHeads()
    wrapper, seen = wrap(make, model), []
    train(model, wrapper, "+")
    wrapper.register_state_dict_pre_hook(seen.append)
    wrapper.register_state_dict_post_hook(lambda opt, state: {**state, "extra": opt})
    state = wrapper.state_dict()
    assert seen == [wrapper]
    assert state.pop("extra") is wrapper

    def rate_of_one(opt, state):
        seen.append(opt)
        groups = [{**group, "lr": 1.0} for group in state["param_groups"]]
        return {**state, "param_groups": groups}

    wrapper.register_load_state_dict_pre_hook(rate_of_one)
    wrapper.register_load_state_dict_post_hook(seen.append)
    wrapper.load_state_dict(state)
    assert seen == [wrapper] * 3
    assert wrapper.param_groups[0]["lr"] == 1.0


@pytest.mark.parametrize("options", [{}, {"strict": True}], ids=["default", "strict"])
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))]
)
@everyone
def test_a_copy_goes_on_as_the_original_does(make, copied, options):
    model = TwoHeads()
    wrapper = wrap(make, model, **options)
    train(model, wrapper, "+a")
    other, twin = copied((model, wrapper))
    assert twin.strict == wrapper.strict
    train(model, wrapper, "ab0+")
    train(other, twin, "ab0+")
    assert_same_bits(snapshot(other, twin), snapshot(model, wrapper))
    assert twin.inner_optimizer is not wrapper.inner_optimizer


@some
def test_a_copy_has_no_hooks_as_in_torch(make):
    wrapper, seen = wrap(make, TwoHeads()), []
    wrapper.register_step_pre_hook(lambda *_: seen.append(1))
    copy.deepcopy(wrapper).step()
    assert seen == []


@pytest.mark.parametrize("schedule", SCHEDULERS.values(), ids=SCHEDULERS)
@some
def test_a_scheduler_drives_the_rate(make, schedule):
    bare, ours = TwoHeads(), TwoHeads()
    optimizer, wrapper = make(bare.parameters()), wrap(make, ours)
    one, two = schedule(optimizer), schedule(wrapper)
    for _ in range(6):
        train(bare, optimizer, "+")
        train(ours, wrapper, "+")
        one.step()
        two.step()
        assert wrapper.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    assert_same_bits(snapshot(ours, wrapper), snapshot(bare, optimizer))


@some
def test_a_scheduler_still_drives_the_rate_after_load_state_dict(make):
    model = TwoHeads()
    wrapper = wrap(make, model)
    plateau = lr_scheduler.ReduceLROnPlateau(wrapper, factor=0.5, patience=0)
    train(model, wrapper, "+")
    wrapper.load_state_dict(copy.deepcopy(wrapper.state_dict()))
    for _ in range(3):
        plateau.step(1.0)
    assert wrapper.inner_optimizer.param_groups[0]["lr"] == 0.025


@some
def test_minimize_counts_as_a_step_for_schedulers(make):
    model = TwoHeads()
    wrapper = wrap(make, model)
    scheduler = lr_scheduler.StepLR(wrapper, 1)
    wrapper.minimize(lambda: model(torch.ones(2, 3), 1.0, 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()


@pytest.mark.parametrize("make", [TORCH["Adam fused"], TORCH["SGD"], TF1["TF1 Adam"]])
def test_grad_scaler_scales_around_it_and_skips_overflow(make):
    bare, ours = TwoHeads(), TwoHeads()
    optimizer, wrapper = make(bare.parameters()), wrap(make, ours)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    train(bare, optimizer, "+++")
    generator = torch.Generator().manual_seed(0)
    for k in range(4):
        if k != 1:
            inputs = torch.randn(2, 3, generator=generator)
        wrapper.zero_grad()
        loss = ours(inputs, 1.0, 1.0) * (torch.inf if k == 1 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(wrapper)
        scaler.update()
    assert_same_bits(snapshot(ours, wrapper), snapshot(bare, optimizer))
    assert scaler.get_scale() == 2.0**9


COMPILED = {
    "wrapped Adam": lambda p: MultitaskOptimizerWrapper(TORCH["Adam"](p)),
    "wrapped SGD": lambda p: MultitaskOptimizerWrapper(TORCH["SGD momentum"](p)),
    "wrapped TF1 Adam": lambda p: MultitaskOptimizerWrapper(TF1["TF1 Adam"](p)),
    "TF1 Adam": TF1["TF1 Adam"],
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # dynamo's own
@pytest.mark.parametrize("make", COMPILED.values(), ids=COMPILED)
def test_a_compiled_training_step_gives_the_same_bits(make):
    plain, compiled = TwoHeads(), TwoHeads()
    optimizer, other = make(plain.parameters()), make(compiled.parameters())

    @torch.compile(backend="eager")
    def step(inputs, weight):
        other.zero_grad()
        compiled(inputs, 1.0, weight).backward()
        other.step()

    for k in range(4):
        weight = float(k % 2)
        optimizer.zero_grad()
        plain(torch.ones(2, 3), 1.0, weight).backward()
        optimizer.step()
        step(torch.ones(2, 3), weight)
    torch.compiler.reset()
    assert_same_bits(snapshot(compiled, other), snapshot(plain, optimizer))


def test_other_attributes_are_those_of_the_wrapped_optimizer():
    wrapper = wrap(TF1["TF1 Adam"], TwoHeads())
    assert wrapper.spec is wrapper.inner_optimizer.spec
    with pytest.raises(AttributeError, match="no_such_thing"):
        wrapper.no_such_thing  # noqa: B018


def test_its_repr_shows_what_it_wraps():
    wrapper = wrap(TORCH["SGD"], TwoHeads())
    assert repr(wrapper).startswith("MultitaskOptimizerWrapper(SGD (\n")
    assert "lr: 0.1" in repr(wrapper)


def test_an_optimizer_that_calls_its_closure_several_times_is_refused():
    lbfgs = torch.optim.LBFGS(TwoHeads().parameters())
    with pytest.raises(ValueError, match="LBFGS, which evaluates its closure several"):
        MultitaskOptimizerWrapper(lbfgs)


@pytest.mark.parametrize("wrong", [None, 3, TwoHeads(), torch.optim.SGD, "SGD"])
@pytest.mark.parametrize("strict", [False, True])
def test_what_is_no_optimizer_is_a_type_error(wrong, strict):
    with pytest.raises(TypeError, match=r"expected a torch\.optim\.Optimizer, got"):
        MultitaskOptimizerWrapper(wrong, strict=strict)
