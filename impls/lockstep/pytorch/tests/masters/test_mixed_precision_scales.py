"""Masters on PyTorch: what scales and clips their gradients, and what is skipped."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.nn import Parameter

from lockstep.pytorch import (
    AutomaticLossScaler,
    DynamicLossScale,
    MixedPrecisionOptimizerWrapper,
)
from lockstep.pytorch.tests.masters.models import (
    SCALES,
    assert_same,
    everything,
    loss_of,
    mixed,
    some,
    step_on,
    train,
    wrapped,
    wrapped_weight,
)
from lockstep.pytorch.tests.subjects import ALL, TORCH, batches


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize("scale", SCALES)
@some
def test_a_step_that_is_not_finite_changes_nothing_and_says_whose_fault(
    name, scale, bad
):
    model = mixed()
    optimizer = wrapped(model, name, SCALES[scale]())
    train(model, optimizer, "++")
    before = everything(model, optimizer)
    optimizer.zero_grad()
    optimizer.scale_loss(loss_of(model, torch.ones(2, 3))).backward()
    with torch.no_grad():
        model.a.weight.grad[0, 0] = bad
        model.b.bias.grad[0] = bad
    optimizer.step()
    assert_same(everything(model, optimizer), before)
    assert not optimizer.last_step.applied
    assert optimizer.last_step.nonfinite == ("a.weight", "b.bias")
    assert "skipped, not finite: a.weight, b.bias" in optimizer.last_step.reason


def test_large_finite_gradients_are_finite_though_their_squares_overflow():
    weight = Parameter(torch.zeros(2, dtype=torch.bfloat16))
    optimizer = wrapped_weight(weight, clip_norm=1.0)
    step_on(weight, optimizer, torch.tensor([3e30, 4e30]))
    assert optimizer.last_step.applied
    assert optimizer.master(weight).tolist() == pytest.approx([-0.6, -0.8], rel=1e-2)


@pytest.mark.parametrize("name", ["SGD", "Adam fused", "Adam", "TF1 Adam"])
def test_the_clip_is_folded_into_the_unscaling(name):
    model, twin = mixed(), mixed()
    optimizer = wrapped(model, name, 64.0, clip_norm=0.5)
    plain = ALL[name](
        [
            (n, Parameter(p.detach().float(), p.requires_grad))
            for n, p in twin.named_parameters()
        ]
    )
    for inputs in batches(3):
        optimizer.zero_grad()
        optimizer.scale_loss(loss_of(model, inputs)).backward()
        optimizer_grads = [p.grad.clone() for p in model.parameters()]
        optimizer.step()
        params = plain.param_groups[0]["params"]
        for parameter, gradient in zip(params, optimizer_grads, strict=True):
            parameter.grad = gradient.float() / 64
        norm = torch.nn.utils.clip_grad_norm_(params, 0.5)
        plain.step()
        assert optimizer.last_step.norm == pytest.approx(norm.item(), rel=1e-5)
        for one, other in zip(optimizer.master_params(), params, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("wrong", ["Backoff", "8", 0, -1.0, float("nan"), True, [8]])
def test_what_is_no_scale_is_refused_and_the_optimizer_left_alone(wrong):
    model = mixed()
    adam = TORCH["Adam"](model.parameters())
    with pytest.raises(ValueError, match="loss_scale"):
        MixedPrecisionOptimizerWrapper(adam, wrong)
    assert adam.param_groups[0]["params"][0] is model.body.weight


@pytest.mark.parametrize("name", ["SGD", "Adam fused"])
def test_gradients_that_were_given_keep_their_values(name):
    model = mixed()
    optimizer = wrapped(model, name, clip_norm=0.5)
    given = [(torch.ones_like(optimizer.master(p)), p) for p in model.parameters()]
    given = [(g, optimizer.master(p)) for g, p in given]
    optimizer.apply_gradients(given)
    assert optimizer.last_step.clip_factor < 1
    assert all((gradient == 1).all() for gradient, _ in given)


def test_gradients_that_overflow_when_they_are_unscaled_are_not_applied():
    weight = Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = wrapped_weight(weight, loss_scale=2.0**-10)
    optimizer.scale_loss(weight.sum() * 1e38).backward()
    weight.grad.fill_(1e38)
    optimizer.step()
    assert optimizer.last_step.nonfinite == ("weight",)
    assert weight.item() == 1.0


def test_an_overflow_lowers_the_scale_only_with_patience():
    model = mixed()
    scale = DynamicLossScale(64.0, 10, backoff_factor=0.25, hysteresis=2)
    optimizer = wrapped(model, "SGD", scale)
    seen = []
    for letter in "!+!":
        train(model, optimizer, letter)
        seen.append(optimizer.loss_scale.item())
    assert seen == [64.0, 64.0, 16.0]
    group = optimizer.state_dict()["param_groups"][0]
    assert group["loss_scale_overflows"] == 1


@pytest.mark.parametrize(
    "scale",
    [
        lambda: 8.0,
        lambda: DynamicLossScale(2.0),
        lambda: AutomaticLossScaler("Backoff", {"scale_max": 2.0}),
    ],
    ids=["number", "dynamic", "backoff"],
)
def test_a_run_that_skips_every_step_at_the_floor_is_told(scale):
    for at_floor in ("warn", "raise", "ignore"):
        model = mixed()
        options = {"at_floor": at_floor, "floor_patience": 3}
        optimizer = wrapped(model, "SGD", scale(), **options)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            train(model, optimizer, "!!")
        if at_floor == "ignore":
            train(model, optimizer, "!")
        elif at_floor == "raise":
            with pytest.raises(RuntimeError, match=r"Wrapper: .* 3 skipped in a"):
                train(model, optimizer, "!")
        else:
            with pytest.warns(UserWarning, match=r"3 skipped in a row .* a\.bias"):
                train(model, optimizer, "!")


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("then", ["absent", "sparse", "given"])
def test_the_norm_is_of_the_gradients_of_this_step_alone(then, fused):
    half, other = Parameter(torch.zeros(2, 1).half()), Parameter(torch.zeros(1).half())
    sgd = torch.optim.SGD([half, other], lr=1.0, momentum=0.5, fused=fused)
    if then == "sparse" and fused:
        pytest.skip("fused SGD takes no sparse gradients")
    optimizer = MixedPrecisionOptimizerWrapper(sgd, 8, clip_norm=1e4)
    half.grad, other.grad = torch.full_like(half, 300.0), torch.ones_like(other)
    optimizer.step()
    # Not the optimizer's zero_grad: masters must have given their gradients back.
    half.grad = other.grad = None
    assert all(p.grad is None for p in optimizer.master_params())
    gradient = torch.full_like(other, 4.0)
    if then == "given":
        optimizer.apply_gradients([(gradient, other)])
    else:
        other.grad = gradient
        if then == "sparse":
            half.grad = torch.tensor([[3.0], [0.0]]).half().to_sparse(1)
        optimizer.step()
    assert optimizer.last_step.norm == (5.0 if then == "sparse" else 4.0)


def test_a_float32_gradient_that_came_after_unscaling_is_refused() -> None:
    half = Parameter(torch.ones(2).half())
    single = Parameter(torch.ones(2))
    sgd = torch.optim.SGD([("half", half), ("single", single)], lr=0.1)
    optimizer = MixedPrecisionOptimizerWrapper(sgd, 8.0)
    optimizer.scale_loss(half.float().sum()).backward()
    optimizer.unscale_()
    single.grad = torch.ones(2)
    with pytest.raises(ValueError):
        optimizer.step()
    assert half.tolist() == single.tolist() == [1.0, 1.0]
