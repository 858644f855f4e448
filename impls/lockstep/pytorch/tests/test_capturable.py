"""Capturable: the same bits as with plain numbers, and nothing waits for a GPU."""

from __future__ import annotations

import math
import random
import warnings
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint import state_dict as checkpoint

from lockstep.interface import NO_GRADIENTS
from lockstep.pytorch import (
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MultitaskOptimizerWrapper,
)
from lockstep.pytorch.tests.devices import no_syncs, on_devices
from lockstep.pytorch.tests.subjects import (
    FUSED,
    TORCH,
    TwoHeads,
    assert_same_bits,
    snapshot,
)

ON_CPU = FUSED | {"Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, fused=True)}
SCALES = {
    "fixed": lambda: 1024,
    "dynamic": lambda: DynamicLossScale(2.0**10, 2),
    "below one": lambda: DynamicLossScale(2.0, 3, floor=0.0625),
    "hysteresis": lambda: DynamicLossScale(2.0**10, 3, hysteresis=2),
}


def started(make, scale, device="cpu", dtype=torch.float32, **options):
    model = TwoHeads().to(device, dtype)
    inner = make(model.named_parameters())
    options = {"capturable": True, **options}
    return model, MixedPrecisionLossScaleOptimizer(inner, scale, **options)


def advance(model, optimizer, overflows, device="cpu", seed=0) -> None:
    """Take a step for each flag; where it is set, an element is not finite."""
    generator = torch.Generator().manual_seed(seed)
    dtype = model.a.weight.dtype
    for overflow in overflows:
        inputs = torch.randn(2, 3, generator=generator).to(device, dtype)
        optimizer.zero_grad()
        optimizer.scale_loss(model(inputs, 1.0, 0.5)).backward()
        if overflow:
            model.b.bias.grad[0] = math.inf
        with no_syncs(device):
            optimizer.step()


COUNTED = "loss_scale", "skipped"


def numbers(optimizer) -> dict[str, float]:
    """Return what the loss scale counts."""
    group = optimizer.state_dict()["param_groups"][0]
    return {k: float(v) for k, v in group.items() if k.startswith(COUNTED)}


def random_overflows(seed: int, count: int = 20) -> list[bool]:
    """Return flags of which the first and every third or so is set, not the last."""
    draw = random.Random(seed)
    return [True, *(draw.random() < 0.3 for _ in range(count - 2)), False]


@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("make", ON_CPU.values(), ids=ON_CPU)
def test_it_gives_the_bits_of_plain_numbers(make, scale, clip_norm) -> None:
    for seed in range(2):
        found = []
        for capturable in (False, True):
            model, optimizer = started(
                make, scale(), capturable=capturable, clip_norm=clip_norm
            )
            reports = []
            for flag in random_overflows(seed):
                advance(model, optimizer, [flag], seed=seed)
                reports.append((optimizer.last_step, vars(optimizer.last_step)))
            found.append((snapshot(model, optimizer), numbers(optimizer), reports))
        assert_same_bits(found[1][0], found[0][0])
        assert found[1][1:] == found[0][1:]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_weights_get_the_bits_of_plain_numbers(dtype) -> None:
    found = []
    for capturable in (False, True):
        model, optimizer = started(
            lambda p: torch.optim.Adam(p, eps=1e-3, fused=True),
            DynamicLossScale(16.0, 2),
            dtype=dtype,
            capturable=capturable,
            clip_norm=0.5,
        )
        advance(model, optimizer, random_overflows(1))
        found.append((snapshot(model, optimizer), numbers(optimizer)))
    assert_same_bits(found[1][0], found[0][0])
    assert found[1][1] == found[0][1]


@on_devices
@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("make", FUSED.values(), ids=FUSED)
def test_no_step_waits_and_an_overflow_changes_nothing(
    make, scale, clip_norm, device
) -> None:
    model, optimizer = started(make, scale(), device, clip_norm=clip_norm)
    advance(model, optimizer, [True, False, False], device)
    before = snapshot(model, optimizer)
    with no_syncs(device):
        for parameter in model.parameters():
            parameter.grad.fill_(math.nan)
        optimizer.step()
    assert_same_bits(snapshot(model, optimizer), before)
    assert not optimizer.last_step.applied
    assert len(optimizer.last_step.nonfinite) == 6
    advance(model, optimizer, [False], device)
    assert optimizer.last_step.applied and optimizer.last_step.nonfinite == ()
    assert (optimizer.last_step.norm is None) == (clip_norm is None)
    assert optimizer.param_groups[0]["skipped_in_a_row"] == 0


@on_devices
def test_the_v1_methods_do_not_wait_either(device) -> None:
    model, optimizer = started(FUSED["Adam"], DynamicLossScale(8.0, 1), device)
    step, inputs = torch.tensor(0, device=device), torch.ones(2, 3, device=device)
    with no_syncs(device):
        for factor in (1.0, math.inf, 1.0):
            optimizer.minimize(lambda f=factor: model(inputs, f, 1.0), step)
    assert step == 2
    assert optimizer.loss_scale == 16


def test_a_first_step_that_is_skipped_leaves_momentum_at_zero() -> None:
    model, optimizer = started(FUSED["SGD momentum"], 8.0)
    # So that torch fills memory that nobody has written with NaN.
    torch.use_deterministic_algorithms(True)
    try:
        advance(model, optimizer, [True])
    finally:
        torch.use_deterministic_algorithms(False)
    buffers = [optimizer.get_slot(p, "momentum") for p in model.parameters()]
    assert all(buffer is not None and not buffer.any() for buffer in buffers)


def test_what_was_saved_does_not_move_with_the_run() -> None:
    model, optimizer = started(FUSED["Adam"], DynamicLossScale(64.0, 1))
    optimizer_state = optimizer.state_dict()
    scale = optimizer.loss_scale
    advance(model, optimizer, [False, False])
    assert optimizer_state["param_groups"][0]["loss_scale"] == scale == 64
    assert optimizer.loss_scale == 256


@pytest.mark.parametrize("way", ["state dict", "nested", "flat", "deepcopy", "plain"])
@pytest.mark.parametrize("make", ON_CPU.values(), ids=ON_CPU)
def test_resuming_gives_the_bits_of_going_on(make, way) -> None:
    scale, flags = SCALES["hysteresis"], random_overflows(5)
    model, optimizer = started(make, scale(), clip_norm=1.0)
    advance(model, optimizer, flags)
    other, fresh = started(make, scale(), clip_norm=1.0, capturable=way != "plain")
    if way == "deepcopy":
        other, fresh = deepcopy((model, optimizer))
    elif way in ("nested", "flat"):
        options = checkpoint.StateDictOptions(
            flatten_optimizer_state_dict=way == "flat"
        )
        saved = checkpoint.get_optimizer_state_dict(model, optimizer, options=options)
        saved = deepcopy(saved)
        # torch.distributed.checkpoint loads into the tensors of a fresh optimizer.
        checkpoint.get_optimizer_state_dict(other, fresh, options=options)
        checkpoint.set_optimizer_state_dict(other, fresh, saved, options=options)
    else:
        fresh.load_state_dict(deepcopy(optimizer.state_dict()))
    other.load_state_dict(model.state_dict())
    assert numbers(fresh) == numbers(optimizer)
    for each, its in ((model, optimizer), (other, fresh)):
        advance(each, its, flags, seed=9)
    assert_same_bits(snapshot(other, fresh), snapshot(model, optimizer))
    assert numbers(fresh) == numbers(optimizer)
    kept = fresh.scale_object.numbers["loss_scale"]
    assert (way == "plain") == isinstance(kept, float)
    assert way == "plain" or kept.dtype == torch.float32


def test_plain_numbers_become_tensors_when_they_are_loaded() -> None:
    model, plain = started(FUSED["Adam"], DynamicLossScale(64.0, 1), capturable=False)
    advance(model, plain, [False, True, False])
    _, fresh = started(FUSED["Adam"], DynamicLossScale(64.0, 1))
    fresh.load_state_dict(deepcopy(plain.state_dict()))
    assert numbers(fresh) == numbers(plain)
    assert isinstance(fresh.scale_object.numbers["skipped_in_a_row"], torch.Tensor)


def test_a_stall_at_the_floor_is_warned_of_when_the_report_is_read() -> None:
    model, optimizer = started(FUSED["Adam"], DynamicLossScale(2.0), floor_patience=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        advance(model, optimizer, [True] * 4)
    with pytest.warns(UserWarning, match=r"4 skipped in a row .* b\.bias"):
        assert not optimizer.last_step.applied


def test_with_nothing_to_apply_nothing_moves() -> None:
    _, optimizer = started(FUSED["Adam"], DynamicLossScale(8.0, 1))
    optimizer.step()
    assert optimizer.loss_scale == 8 and optimizer.last_step == NO_GRADIENTS


def weights():
    return [nn.Parameter(torch.ones(1))]


REFUSED = {
    "plain Adam": (lambda: torch.optim.Adam(weights()), {}),
    "foreach Adam": (lambda: TORCH["Adam foreach"](weights()), {}),
    "wrapper": (lambda: MultitaskOptimizerWrapper(FUSED["Adam"](weights())), {}),
    "dampening": (
        lambda: torch.optim.SGD(weights(), momentum=0.9, dampening=0.5, fused=True),
        {},
    ),
    "raise": (lambda: FUSED["Adam"](weights()), {"at_floor": "raise"}),
}


@pytest.mark.parametrize(("make", "options"), REFUSED.values(), ids=REFUSED)
def test_what_would_have_to_wait_is_refused_in_a_sentence(make, options) -> None:
    with pytest.raises(ValueError, match=r"capturable=True, got .*; .*\.$"):
        MixedPrecisionLossScaleOptimizer(make(), 8, capturable=True, **options)


def test_a_state_dict_hook_may_replace_the_state() -> None:
    _, optimizer = started(FUSED["SGD"], DynamicLossScale(2.0**10, 2))
    optimizer.register_state_dict_post_hook(lambda _, state: {"optimizer": state})
    saved = optimizer.state_dict()["optimizer"]
    scale = saved["param_groups"][0]["loss_scale"]
    assert scale is not optimizer.param_groups[0]["loss_scale"]
    assert scale.item() == 2.0**10
