"""Masters on PyTorch: copies, saved states, and what is loaded."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.distributed.checkpoint import state_dict as checkpoint
from torch.nn import Parameter

from lockstep import pytorch
from lockstep.pytorch import (
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
)
from lockstep.pytorch.tests.masters.models import (
    SCALES,
    assert_same,
    everything,
    mixed,
    rules_and_scales,
    step_on,
    train,
    wrapped,
    wrapped_weight,
)
from lockstep.pytorch.tests.subjects import ALL, OWN, TwoHeads


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
