"""Masters on PyTorch: groups, state, checkpoints, writes into weights."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from torch.distributed.checkpoint import state_dict as checkpoint
from torch.nn import Parameter

from lockstep import pytorch
from lockstep.errors import UnsupportedError
from lockstep.pytorch import (
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
)
from lockstep.pytorch.tests.half_models import (
    SCALES,
    assert_same,
    everyone,
    everything,
    halves,
    loss_of,
    mixed,
    rules_and_scales,
    some,
    step_on,
    train,
    wrapped,
    wrapped_weight,
)
from lockstep.pytorch.tests.subjects import ALL, OWN, TwoHeads, batches


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))]
)
@rules_and_scales(ALL)
def test_a_copy_goes_on_as_the_original_does(name, copied, scale):
    model = mixed()
    optimizer = wrapped(model, name, SCALES[scale]())
    train(model, optimizer, "+a")
    other, twin = copied((model, optimizer))
    train(model, optimizer, "ab0+")
    train(other, twin, "ab0+")
    assert_same(everything(other, twin), everything(model, optimizer))
    assert twin.loss_scale == optimizer.loss_scale


@pytest.mark.parametrize("first", ["model", "optimizer"])
@rules_and_scales(ALL)
def test_a_loaded_state_goes_on_to_the_bit(name, scale, first):
    model = mixed()
    optimizer = wrapped(model, name, SCALES[scale]())
    train(model, optimizer, "+ab")
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    fresh = mixed()
    with torch.no_grad():
        for weight in fresh.parameters():
            weight.zero_()
    loaded = wrapped(fresh, name, SCALES[scale]())
    loads = [(fresh, saved[0]), (loaded, saved[1])]
    for target, state in loads if first == "model" else reversed(loads):
        target.load_state_dict(state)
    train(model, optimizer, "ba+")
    train(fresh, loaded, "ba+")
    assert_same(everything(fresh, loaded), everything(model, optimizer))
    assert loaded.loss_scale == optimizer.loss_scale


@pytest.mark.parametrize("flat", [False, True], ids=["nested", "flat"])
@rules_and_scales(
    [*OWN, "SGD", "SGD momentum", "Adam", "Adam fused", "RMSprop", "Adagrad"]
)
def test_distributed_checkpoints_resume_to_the_bit(name, scale, flat):
    options = checkpoint.StateDictOptions(flatten_optimizer_state_dict=flat)
    model = mixed()
    optimizer = wrapped(model, name, SCALES[scale]())
    train(model, optimizer, "+ab")
    saved = checkpoint.get_optimizer_state_dict(model, optimizer, options=options)
    saved = copy.deepcopy(saved)
    fresh = mixed()
    loaded = wrapped(fresh, name, SCALES[scale]())
    fresh.load_state_dict(model.state_dict())
    checkpoint.set_optimizer_state_dict(fresh, loaded, saved, options=options)
    train(model, optimizer, "ba+")
    train(fresh, loaded, "ba+")
    assert_same(everything(fresh, loaded), everything(model, optimizer))
    assert loaded.loss_scale == optimizer.loss_scale


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("name", ["Adam", "SGD", "TF1 Adam"])
def test_distributed_checkpoints_keep_masters_that_are_trained_late(name, before):
    """torch saves nothing of parameters that are frozen then."""
    models = [mixed(), mixed()]
    optimizers = []
    for model in models:
        model.body.requires_grad_(not before)
        optimizers.append(wrapped(model, name))
    with torch.no_grad():
        models[0].body.weight.add_(0.5)
    train(models[0], optimizers[0], "+")
    for model in models:
        model.body.requires_grad_(True)
    train(models[0], optimizers[0], "+ab")
    saved = checkpoint.get_optimizer_state_dict(models[0], optimizers[0])
    saved = copy.deepcopy(saved)
    models[1].load_state_dict(models[0].state_dict())
    checkpoint.set_optimizer_state_dict(models[1], optimizers[1], saved)
    for model, optimizer in zip(models, optimizers, strict=True):
        train(model, optimizer, "ba+")
    assert_same(*[everything(*pair) for pair in zip(models, optimizers, strict=True)])


def test_what_was_written_into_the_model_is_saved():
    weight, fresh = (Parameter(torch.full((2,), v).half()) for v in (1.0, 5.0))
    optimizer, other = wrapped_weight(weight), wrapped_weight(fresh)
    with torch.no_grad():
        weight.fill_(3.0)
    other.load_state_dict(optimizer.state_dict())
    assert fresh.tolist() == [3.0, 3.0]


def test_distributed_checkpoints_resume_where_one_task_had_no_gradient_yet():
    def started():
        model = TwoHeads().half()
        adam = torch.optim.Adam(model.named_parameters(), lr=0.01)
        inner = MultitaskOptimizerWrapper(adam)
        return model, MixedPrecisionOptimizerWrapper(inner, 8)

    model, optimizer = started()
    for parameter in model.parameters():
        is_head = parameter is model.a.weight
        parameter.grad = torch.full_like(parameter, 0.0 if is_head else 1.0)
    optimizer.step()
    assert "exp_avg" not in optimizer.state_dict()["state"][2]
    saved = copy.deepcopy(checkpoint.get_optimizer_state_dict(model, optimizer))
    fresh, loaded = started()
    checkpoint.set_optimizer_state_dict(fresh, loaded, saved)
    for each, wrapper in ((model, optimizer), (fresh, loaded)):
        for parameter in each.parameters():
            parameter.grad = torch.ones_like(parameter)
        wrapper.step()
    assert_same(everything(fresh, loaded), everything(model, optimizer))


def test_slots_are_those_of_the_master():
    weight = Parameter(torch.ones(2).half())
    optimizer = MixedPrecisionOptimizerWrapper(pytorch.AdamOptimizer([weight], 1.0))
    assert optimizer.get_slot(weight, "m").dtype == torch.float32
    assert optimizer.get_slot_names() == ["m", "v"]
    assert optimizer.get_name() == "Adam-MP"


def test_state_that_was_made_before_is_taken_over_in_float32():
    weight = Parameter(torch.ones(2).half())
    adam = torch.optim.Adam([weight], lr=0.1)
    step_on(weight, adam, torch.ones(2))
    first = adam.state[weight]["exp_avg"].float()
    optimizer = MixedPrecisionOptimizerWrapper(adam)
    kept = optimizer.get_slot(weight, "m")
    assert torch.equal(kept, first)
    assert kept.dtype == torch.float32
    step_on(weight, optimizer, torch.ones(2))
    assert optimizer.state[optimizer.master(weight)]["step"] == 2


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


@pytest.mark.parametrize("outer", [lambda o: o, MultitaskOptimizerWrapper])
@halves
def test_eval_and_train_of_the_inner_optimizer_reach_the_weights_at_once(dtype, outer):
    model = mixed(dtype)
    optimizer = MixedPrecisionOptimizerWrapper(Averaged(model.parameters(), lr=0.1))
    train(model, optimizer, "+")
    before = everything(model, optimizer)
    outer(optimizer).eval()
    assert_weights_are_rounded_masters(model, optimizer)
    assert torch.equal(optimizer.master(model.a.weight), before["a.weight master"] / 2)
    outer(optimizer).train()
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


def added(pair):
    _, optimizer = pair
    optimizer.add_param_group({"params": [("other", Parameter(torch.ones(3).half()))]})
    return pair


def pickled(pair):
    return pickle.loads(pickle.dumps(pair))


each_event = pytest.mark.parametrize("event", [added, copy.deepcopy, pickled])


def written(weight, value):
    with torch.no_grad():
        weight.fill_(value)


def step(weight, optimizer):
    weight.grad = torch.ones_like(weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()


def pair_after(dtype, steps):
    """Return a weight and its optimizer of rate 1 after some steps."""
    weight = Parameter(torch.zeros(2, dtype=dtype))
    optimizer = wrapped_weight(weight, lr=1.0)
    for _ in range(steps):
        step(weight, optimizer)
    return weight, optimizer


@halves
@each_event
@pytest.mark.parametrize("steps", [0, 2])
def test_a_loaded_weight_is_trained_on(dtype, event, steps):
    weight, optimizer = pair = pair_after(dtype, steps)
    written(weight, 7)
    weight, optimizer = event(pair)
    step(weight, optimizer)
    assert weight.tolist() == optimizer.master(weight).tolist() == [6, 6]


@each_event
@pytest.mark.parametrize("steps", [0, 2])
def test_a_written_master_is_trained_on(event, steps):
    weight, optimizer = pair = pair_after(torch.float16, steps)
    written(optimizer.master(weight), 7)
    weight, optimizer = event(pair)
    step(weight, optimizer)
    assert weight.tolist() == optimizer.master(weight).tolist() == [6, 6]


def test_masters_keep_their_digits_when_a_group_is_added():
    weight, optimizer = pair = pair_after(torch.float16, 0)
    written(optimizer.master(weight), 1 + 2.0**-14)
    step(*pair)
    added(pair)
    step(*pair)
    assert optimizer.master(weight).tolist() == [2.0**-14 - 1] * 2
