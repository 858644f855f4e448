"""Half-precision weights that others write into through ``.data``, beside masters."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch.nn import Parameter
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from lockstep.pytorch import DynamicLossScale, MixedPrecisionOptimizerWrapper
from lockstep.pytorch.masters.copies import EVERY
from lockstep.pytorch.tests.masters.models import (
    assert_same,
    everything,
    halves,
    mixed,
    train,
    wrapped,
    wrapped_weight,
)

THROUGH_DATA = r"written through \.data.*no_grad"


def stepped(optimizer, weight, steps):
    for _ in range(steps):
        weight.grad = torch.ones_like(weight)
        optimizer.step()


@halves
def test_a_clamp_after_every_step_is_found_and_holds_from_then_on(dtype):
    weight = Parameter(torch.zeros(3, dtype=dtype))
    optimizer = wrapped_weight(weight, lr=0.25)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(2 * EVERY):
            stepped(optimizer, weight, 1)
            # Seen: the clamped weight, and one step from it.
            if step > EVERY:
                assert (optimizer.master(weight) == -1.25).all()
            weight.data.clamp_(-1, 1)
    (warning,) = caught
    assert "1 written through .data" in str(warning.message)


@halves
def test_a_merge_before_the_first_step_is_adopted(dtype):
    model = mixed(dtype)
    optimizer = wrapped(model, "SGD")
    model.body.weight.data += 1
    expected = model.body.weight.detach().float()
    with pytest.warns(UserWarning, match=THROUGH_DATA):
        train(model, optimizer, "!")
    assert torch.equal(optimizer.master(model.body.weight), expected)


def test_only_what_was_written_is_taken_over():
    weight = Parameter(torch.ones(2).half())
    optimizer = wrapped_weight(weight, lr=2.0**-13)
    stepped(optimizer, weight, 1)
    weight.data[0] = 3
    with pytest.warns(UserWarning, match=THROUGH_DATA):
        optimizer.state_dict()
    assert optimizer.master(weight).tolist() == [3, 1 - 2.0**-13]


def test_vectors_and_replaced_data_are_seen_at_once_and_without_a_warning():
    model = mixed()
    optimizer = wrapped(model, "SGD")
    train(model, optimizer, "++")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for change in (2.0, 3.0):
            halves = [*model.body.parameters(), *model.a.parameters()]
            vector = parameters_to_vector(halves).detach() * change
            vector_to_parameters(vector, halves)
            train(model, optimizer, "!")
            masters = parameters_to_vector(map(optimizer.master, halves))
            assert torch.equal(masters.half(), vector)


def test_a_state_has_what_was_written():
    model = mixed()
    optimizer = wrapped(model, "Adam")
    train(model, optimizer, "++")
    model.a.weight.data.fill_(0.5)
    with pytest.warns(UserWarning, match=THROUGH_DATA):
        saved = copy.deepcopy(optimizer.state_dict())
    twin = mixed()
    other = wrapped(twin, "Adam")
    twin.load_state_dict(model.state_dict())
    other.load_state_dict(saved)
    assert_same(everything(twin, other), everything(model, optimizer))
    assert (other.master(twin.a.weight) == 0.5).all()


def test_weights_swapped_for_an_evaluation_come_back():
    model = mixed()
    optimizer = wrapped(model, "SGD")
    train(model, optimizer, "++")
    before = {name: w.detach().clone() for name, w in model.named_parameters()}
    model.body.weight.data.zero_()
    with pytest.warns(UserWarning, match=THROUGH_DATA):
        optimizer.state_dict()
    model.body.weight.data.copy_(before["body.weight"])
    train(model, optimizer, "!")
    after = dict(model.named_parameters())
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_a_master_that_was_written_into_stays():
    weight, other = (Parameter(torch.zeros(2).half()) for _ in range(2))
    sgd = torch.optim.SGD([weight, other], lr=1.0)
    optimizer = MixedPrecisionOptimizerWrapper(sgd)
    for value in (2.0, 3.0):
        with torch.no_grad():
            optimizer.master(weight).fill_(5)
            other.fill_(value)
        assert optimizer.state_dict()["state"][0]["master"].tolist() == [5, 5]
        stepped(optimizer, weight, 1)
        assert weight.tolist() == [4, 4]


def test_strict_looks_for_nothing():
    weight = Parameter(torch.zeros(2).half())
    optimizer = wrapped_weight(weight, strict=True)
    weight.data.fill_(7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.state_dict()
        stepped(optimizer, weight, 1)
    assert weight.tolist() == [-1, -1]


@halves
@pytest.mark.parametrize("capturable", [False, True])
def test_nobody_is_warned_who_wrote_nothing(dtype, capturable):
    odd = [torch.inf, -torch.inf, torch.nan, -0.0, 1e-7, torch.finfo(dtype).max]
    weight, frozen = (Parameter(torch.tensor(odd, dtype=dtype)) for _ in range(2))
    frozen.requires_grad_(False)
    sgd = torch.optim.SGD([weight, frozen], lr=1e-3, fused=True)
    scale = DynamicLossScale(4.0, 2)
    optimizer = MixedPrecisionOptimizerWrapper(sgd, scale, capturable=capturable)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(EVERY + 2):
            stepped(optimizer, weight, 1)
            optimizer.state_dict()


@halves
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("name", ["SGD", "Adam", "TF1 Adam"])
@pytest.mark.parametrize("writes_weight", [False, True])
def test_masters_whose_memory_was_replaced_are_trained_on(
    dtype, steps, name, writes_weight
):
    plain, replaced = mixed(dtype), mixed(dtype)
    one, other = wrapped(plain, name), wrapped(replaced, name)
    for model, optimizer in ((plain, one), (replaced, other)):
        train(model, optimizer, "+" * steps)
    with torch.no_grad():
        for master in one.master_params():
            master.add_(1)
    vector_to_parameters(
        parameters_to_vector(other.master_params()) + 1, other.master_params()
    )
    assert_same(everything(plain, one), everything(replaced, other))
    for model, optimizer in ((plain, one), (replaced, other)):
        if writes_weight:
            with torch.no_grad():
                model.body.bias.add_(1)
        train(model, optimizer, "!+a+")
    assert_same(everything(plain, one), everything(replaced, other))
