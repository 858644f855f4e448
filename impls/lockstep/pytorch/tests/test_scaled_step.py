"""What a scaled step makes of the gradients: one look, one factor, one report."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from lockstep.pytorch import (
    AdamOptimizer,
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.pytorch.norms import LARGEST, total_norm
from lockstep.pytorch.scaled_step import inverse
from lockstep.pytorch.tests.subjects import ALL, TwoHeads, assert_same_bits, snapshot

FUSED = {
    "Adam": lambda params: torch.optim.Adam(params, lr=0.1, fused=True),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=0.1, fused=True),
    "SGD": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, fused=True),
    "Adagrad": lambda params: torch.optim.Adagrad(params, lr=0.1, fused=True),
}


def started(make, scale=65536, **options):
    model = TwoHeads()
    inner = make(model.named_parameters())
    return model, MixedPrecisionLossScaleOptimizer(inner, scale, **options)


def backward(model, optimizer) -> None:
    optimizer.zero_grad()
    optimizer.scale_loss(model(torch.ones(2, 3), 1.0, 2.0)).backward()


@pytest.mark.parametrize("make", (ALL | FUSED).values(), ids=ALL | FUSED)
def test_the_loss_scale_does_not_change_a_clipped_step(make) -> None:
    found = []
    for scale in (1, 65536):
        model, optimizer = started(make, scale, clip_norm=0.1)
        factors = []
        for _ in range(3):
            backward(model, optimizer)
            optimizer.step()
            factors.append(optimizer.last_step.clip_factor)
        assert factors[0] < 0.1
        found.append(snapshot(model, optimizer))
    assert_same_bits(*found)


@pytest.mark.parametrize("make", (ALL | FUSED).values(), ids=ALL | FUSED)
def test_a_clipped_step_is_a_step_with_clipped_gradients(make) -> None:
    model, optimizer = started(make, 1024, clip_norm=0.5)
    other = TwoHeads()
    bare = make(other.parameters())
    backward(model, optimizer)
    optimizer.step()
    other(torch.ones(2, 3), 1.0, 2.0).backward()
    norm = math.sqrt(sum(p.grad.double().norm() ** 2 for p in other.parameters()))
    for p in other.parameters():
        p.grad = (p.grad.double() * (0.5 / norm)).float()
    bare.step()
    assert optimizer.last_step.norm == pytest.approx(norm, rel=1e-6)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        # The factor is rounded to float32, and the norm is right to 1e-6.
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=2e-6, atol=0)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_norm_at_the_limit_keeps_its_bits() -> None:
    weight = nn.Parameter(torch.zeros(2))
    sgd = torch.optim.SGD([weight], lr=1.0)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, 1, clip_norm=49)
    weight.grad = torch.tensor([49.0, 0.0])
    optimizer.step()
    assert weight.tolist() == [-49.0, 0.0]
    assert optimizer.last_step.clip_factor == 1.0


@pytest.mark.parametrize("make", [ALL["Adam"], FUSED["Adam"]], ids=["Adam", "fused"])
def test_grad_holds_what_was_applied_or_what_came(make) -> None:
    model, optimizer = started(make, 1024, clip_norm=1.0)
    backward(model, optimizer)
    optimizer.step()
    assert total_norm([p.grad for p in model.parameters()]) == pytest.approx(1.0)
    backward(model, optimizer)
    came = [p.grad.clone() for p in model.parameters()]
    model.a.bias.grad[0] = torch.inf
    optimizer.step()
    for parameter, gradient in zip(model.parameters(), came, strict=True):
        assert parameter is model.a.bias or torch.equal(parameter.grad, gradient)


@pytest.mark.parametrize("make", [ALL["Adam"], FUSED["Adam"]], ids=["Adam", "fused"])
def test_apply_gradients_leaves_its_arguments_as_they_are(make) -> None:
    weights = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = MixedPrecisionLossScaleOptimizer(make(weights), 8, clip_norm=0.5)
    gradient = torch.ones(2)
    optimizer.apply_gradients([(gradient, weight) for weight in weights])
    assert gradient.tolist() == [1.0, 1.0]
    assert torch.equal(*weights) and weights[0][0] < 1


def test_a_norm_that_float32_cannot_hold_is_an_overflow_when_it_is_to_be_clipped():
    for clip_norm in (None, 1.0):
        weight = nn.Parameter(torch.zeros(4))
        optimizer = MixedPrecisionLossScaleOptimizer(
            torch.optim.SGD([weight], lr=1e-38), 1, clip_norm=clip_norm
        )
        weight.grad = torch.full((4,), 3e38)
        optimizer.step()
        assert optimizer.last_step.applied == (clip_norm is None)
        assert optimizer.last_step.nonfinite == ()
    assert "the norm of all gradients" in optimizer.last_step.reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_below_scale_1_a_gradient_may_overflow_when_it_is_divided(dtype) -> None:
    weight = nn.Parameter(torch.zeros(3, dtype=dtype))
    scale = DynamicLossScale(0.25, floor=0.125)
    sgd = torch.optim.SGD([("weight", weight)], lr=1e-4)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, scale)
    largest = torch.finfo(dtype).max
    for part, applied in ((0.5, False), (0.1, True)):
        optimizer.zero_grad()
        optimizer.scale_loss(weight.sum()).backward()
        weight.grad = torch.full_like(weight, largest * part)
        optimizer.step()
        assert optimizer.last_step.applied == applied
        assert optimizer.last_step.nonfinite == (() if applied else ("weight",))


@pytest.mark.parametrize("outer", ["rows", "multitask"])
def test_a_wrapper_outside_still_tells_what_was_not_finite(outer) -> None:
    model, scaler = started(ALL["SGD"], "dynamic", clip_norm=1.0)
    weight = model.a.weight
    optimizer = VariableClippingOptimizer(scaler, {weight: [1]}, max_norm=1.0)
    if outer == "multitask":
        optimizer = MultitaskOptimizerWrapper(scaler)
    backward(model, scaler)
    weight.grad[0, 0] = torch.nan
    optimizer.step()
    if outer == "rows":
        assert optimizer.last_step.nonfinite == ("a.weight",)
    assert scaler.last_step.nonfinite == ("a.weight",)
    assert scaler.last_step.norm is None
    assert not optimizer.took_step()


# An eps that float16 can hold: torch's and TF's own are 0 there.
HALF = {
    "SGD": ALL["SGD momentum"],
    "Adam": lambda params: torch.optim.Adam(params, lr=0.01, eps=1e-3),
    "Adam fused": lambda params: torch.optim.Adam(
        params, lr=0.01, eps=1e-3, fused=True
    ),
    "Momentum": ALL["Momentum"],
    "TF1 Adam": lambda params: AdamOptimizer(params, 0.01, epsilon=1e-3),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("make", HALF.values(), ids=HALF)
def test_half_precision_weights_train_scaled_and_clipped(make, dtype) -> None:
    model = TwoHeads().to(dtype)
    optimizer = MixedPrecisionLossScaleOptimizer(
        make(model.parameters()), DynamicLossScale(2.0**10), clip_norm=0.5
    )
    weights, losses = list(model.parameters()), []
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3, dtype=dtype), 1.0, 1.0)
        losses.append(loss.item())
        optimizer.scale_loss(loss).backward()
        optimizer.step()
        assert optimizer.last_step.applied
    assert optimizer.last_step.norm > 0.5 > total_norm([p.grad for p in weights]) * 0.99
    assert losses[-1] < losses[0]
    assert {p.dtype for p in model.parameters()} == {dtype}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["Adam", "Adam fused", "TF1 Adam"])
def test_autocast_trains_float32_weights_and_skips_an_overflow(name, dtype) -> None:
    model, optimizer = started(ALL[name], DynamicLossScale(2.0**15), clip_norm=1.0)
    losses, applied = [], []
    for step in range(8):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            factor = 1e38 if step == 2 else 1.0
            loss = model(torch.ones(2, 3), 1.0, 1.0)
        losses.append(loss.item())
        (optimizer.scale_loss(loss) * factor).backward()
        optimizer.step()
        applied.append(optimizer.last_step.applied)
    assert applied == [step != 2 for step in range(8)]
    assert losses[-1] < losses[0] and losses[2] == losses[3]
    assert optimizer.loss_scale == 2.0**14
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_gradients_are_copied_only_where_they_were_handed_in() -> None:
    parameter = nn.Parameter(torch.ones(2))
    sgd = torch.optim.SGD([parameter], lr=0.5)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, 2.0)
    own = torch.tensor([2.0, 4.0])
    optimizer.scale_loss(parameter.sum()).backward()
    optimizer.apply_gradients([(own, parameter)])
    assert own.tolist() == [2.0, 4.0]  # borrowed, so it keeps its values
    optimizer.zero_grad()
    optimizer.scale_loss(parameter.sum()).backward()
    gradient = parameter.grad
    optimizer.step()
    assert parameter.grad is gradient and gradient.tolist() == [1.0, 1.0]


def test_a_scale_without_patience_saves_no_counts_of_overflows() -> None:
    parameter = nn.Parameter(torch.ones(2))
    keys = {}
    for hysteresis in 1, 2:
        sgd = torch.optim.SGD([parameter], lr=0.5)
        scale = DynamicLossScale(hysteresis=hysteresis)
        state = MixedPrecisionLossScaleOptimizer(sgd, scale).state_dict()
        keys[hysteresis] = {k for k in state["param_groups"][0] if "overflows" in k}
    assert keys == {1: set(), 2: {"loss_scale_overflows"}}


@pytest.mark.parametrize(
    "large", [torch.tensor(3e38), torch.tensor(1e200, dtype=torch.float64)]
)
def test_finite_gradients_with_a_sum_or_a_norm_that_is_not_are_applied(large) -> None:
    weight = nn.Parameter(torch.zeros(4, dtype=large.dtype))
    sgd = torch.optim.SGD([weight], lr=0.5)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, "dynamic")
    weight.grad = large.expand(4).clone()
    optimizer.step()
    assert weight.tolist() == [-large.item() / 2] * 4
    assert optimizer.last_step.applied


def test_the_reciprocal_of_a_scale_in_a_tensor_stays_on_its_device() -> None:
    scale = torch.full((), 8.0, device="meta")
    assert inverse(scale).device == scale.device
    assert inverse(8.0) == 0.125


def test_a_norm_of_the_largest_float32_number_is_finite_at_a_scale_below_1() -> None:
    weight = nn.Parameter(torch.zeros(1))
    scale = DynamicLossScale(0.5, floor=0.25)
    sgd = torch.optim.SGD([weight], lr=1.0)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, scale, clip_norm=1.0)
    optimizer.scale_loss(weight.sum()).backward()
    weight.grad = torch.full((1,), LARGEST / 2)
    optimizer.step()
    assert optimizer.last_step.norm == LARGEST
    assert optimizer.last_step.applied
