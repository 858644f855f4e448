"""The multitask wrapper with capturable: the bits of the step that waits, unread."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch.nn import Parameter

from lockstep.errors import UnsupportedError
from lockstep.interface import NO_GRADIENTS
from lockstep.pytorch import (
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.pytorch.tests.devices import NoHostReads, no_syncs, on_devices
from lockstep.pytorch.tests.subjects import FUSED, TwoHeads, batches

HEADS = {"+": (1.0, 0.5), "a": (1.0, 0.0), "b": (0.0, 0.5), "0": (0.0, 0.0)}
PATTERN = "ab+0!+ba!0+"


def alone(opt, model, capturable):
    return MultitaskOptimizerWrapper(opt, capturable=capturable)


def scaled(opt, model, capturable, clip_norm=None):
    """Unscale, then leave zeros out."""
    return MixedPrecisionLossScaleOptimizer(
        alone(opt, model, capturable),
        DynamicLossScale(2.0**6, 3),
        clip_norm=clip_norm,
        capturable=capturable,
    )


def everything(opt, model, capturable):
    """Unscale and clip, leave zeros out, and clip the rows of a head."""
    limits = {model.a.weight: [1]}
    return VariableClippingOptimizer(scaled(opt, model, capturable, 0.5), limits, 0.5)


STACKS = {"alone": alone, "scaled": scaled, "everything": everything}
# With clip_norm, the fused optimizer divides once by a number that is no power of 2.
# The step that waits multiplies by its rounded reciprocal.
ROUNDING = {"alone": 0.0, "scaled": 0.0, "everything": 1e-5}


def started(make, stack=alone, capturable=True, device="cpu"):
    model = TwoHeads().to(device)
    return model, stack(make(model.named_parameters()), model, capturable)


def set_gradients(model, optimizer, letter, inputs) -> None:
    """Compute gradients: of both heads, one, none, or (!) one that is not finite."""
    optimizer.zero_grad()
    loss = model(inputs, *HEADS.get(letter, HEADS["+"]))
    getattr(optimizer, "scale_loss", lambda loss: loss)(loss).backward()
    if letter == "!":
        model.b.bias.grad[0] = math.inf


def trained(made, pattern, device="cpu"):
    model, optimizer = made
    reports = []
    for letter, inputs in zip(pattern, batches(len(pattern)), strict=True):
        set_gradients(model, optimizer, letter, inputs.to(device))
        optimizer.step()
        reports.append(optimizer.last_step)
    return reports


def state_of(model, optimizer):
    """Return the state of each parameter by name, without that which is all zero."""
    return {
        (name, key): torch.as_tensor(value)
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if torch.as_tensor(value).any()
    }


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("name", FUSED)
def test_it_gives_the_bits_of_the_step_that_waits(name, stack) -> None:
    pattern = PATTERN if stack != "alone" else PATTERN.replace("!", "a")
    results = []
    for capturable in (False, True):
        model, optimizer = started(FUSED[name], STACKS[stack], capturable)
        reports = trained((model, optimizer), pattern)
        results.append((dict(model.named_parameters()), model, optimizer, reports))
    (expected, plain, waits, reports), (got, ours, optimizer, own) = results
    near = {"rtol": ROUNDING[stack], "atol": 1e-2 * ROUNDING[stack]}
    torch.testing.assert_close(got, expected, **near)
    states = state_of(ours, optimizer), state_of(plain, waits)
    torch.testing.assert_close(*states, **near)
    assert own == reports
    assert [report.skipped for report in own] == [r.skipped for r in reports]


def test_no_number_is_read_from_a_tensor() -> None:
    model, optimizer = started(FUSED["Adam"])
    for letter, inputs in zip("a+0b", batches(4), strict=True):
        set_gradients(model, optimizer, letter, inputs)
        with NoHostReads():
            optimizer.step()
    with NoHostReads(), pytest.raises(AssertionError, match="was read"):
        model.a.bias[0].item()


@on_devices
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("name", FUSED)
def test_no_step_waits(name, stack, device) -> None:
    model, optimizer = started(FUSED[name], STACKS[stack], device=device)
    trained((model, optimizer), "a+", device)
    before = copy.deepcopy(dict(model.b.named_parameters()))
    set_gradients(model, optimizer, "a", next(batches(1)).to(device))
    with no_syncs(device):
        optimizer.step()
    assert set(optimizer.last_step.skipped) == {"b.weight", "b.bias"}
    torch.testing.assert_close(dict(model.b.named_parameters()), before, rtol=0, atol=0)


def test_parameters_that_never_had_a_gradient_have_an_untouched_state() -> None:
    model, optimizer = started(FUSED["Adam"])
    trained((model, optimizer), "aa")
    state = optimizer.state[model.b.weight]
    assert not any(torch.as_tensor(value).any() for value in state.values())
    assert optimizer.state[model.a.weight]["step"] == 2


def test_a_skipped_step_has_reached_no_wrapper_inside() -> None:
    model, optimizer = started(FUSED["Adam"], scaled)
    trained((model, optimizer), "a!")
    assert not optimizer.last_step.applied
    assert optimizer.inner_optimizer.last_step == NO_GRADIENTS


def test_gradients_are_put_back_when_the_step_fails() -> None:
    model, optimizer = started(FUSED["Adam"])
    set_gradients(model, optimizer, "+", next(batches(1)))
    gradients = [parameter.grad for parameter in model.parameters()]
    calls = []

    def fail(*_) -> None:
        calls.append(None)
        if len(calls) == 3:
            raise RuntimeError("out of memory")

    optimizer.inner_optimizer.register_step_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        optimizer.step()
    assert all(p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))
    assert not hasattr(optimizer.inner_optimizer, "found_inf")


def test_a_step_without_gradients_takes_none() -> None:
    model, optimizer = started(FUSED["Adam"])
    optimizer.step()
    assert optimizer.last_step == NO_GRADIENTS
    assert not optimizer.state
    assert model.a.weight.grad is None


def test_a_copy_stays_capturable() -> None:
    _, optimizer = started(FUSED["Adam"])
    assert copy.deepcopy(optimizer).capturable
    state = optimizer.__getstate__()
    del state["capturable"]
    of_an_earlier_release = object.__new__(MultitaskOptimizerWrapper)
    of_an_earlier_release.__setstate__(state)
    assert not of_an_earlier_release.capturable


@pytest.mark.parametrize(
    ("opt", "options", "sentence"),
    [
        ({}, {}, "a fused optimizer for capturable=True, got SGD that is not"),
        ({"fused": True}, {"strict": True}, "expected no strict with capturable=True"),
        (
            {"fused": True, "momentum": 0.9, "dampening": 0.5},
            {},
            "momentum without dampening for capturable=True, got 0.5",
        ),
    ],
)
def test_what_would_wait_is_refused(opt, options, sentence) -> None:
    sgd = torch.optim.SGD([Parameter(torch.ones(1))], lr=0.1, **opt)
    with pytest.raises(UnsupportedError, match=sentence):
        MultitaskOptimizerWrapper(sgd, capturable=True, **options)


def test_a_wrapper_that_decides_on_the_host_is_refused_inside() -> None:
    weight = Parameter(torch.ones(2, 2))
    inside = VariableClippingOptimizer(FUSED["SGD"]([weight]), {weight: [1]}, 1.0)
    with pytest.raises(UnsupportedError, match="got VariableClippingOptimizer that is"):
        MultitaskOptimizerWrapper(inside, capturable=True)
