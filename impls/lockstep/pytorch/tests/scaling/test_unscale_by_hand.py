"""``unscale_`` between ``backward`` and ``step``: what is clipped is applied."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from lockstep.errors import UnsupportedError
from lockstep.pytorch import (
    AutomaticLossScaler,
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    mp_regularizer_wrapper,
)
from lockstep.pytorch.tests.masters.models import loss_of, mixed
from lockstep.pytorch.tests.subjects import ALL, TwoHeads, batches

INPUTS = next(batches(1))
KINDS = {
    "scaled": (TwoHeads, MixedPrecisionLossScaleOptimizer),
    "masters": (mixed, MixedPrecisionOptimizerWrapper),
    "masters bfloat16": (lambda: mixed(torch.bfloat16), MixedPrecisionOptimizerWrapper),
}
CAPTURABLE = {"capturable": True}
kinds = pytest.mark.parametrize("kind", KINDS)
modes = pytest.mark.parametrize(
    ("kind", "options"),
    [*((kind, {}) for kind in KINDS), ("scaled", CAPTURABLE)],
    ids=[*KINDS, "capturable"],
)


def started(kind, name="Adam fused", scale=1024, **options):
    make, wrapper = KINDS[kind]
    model = make()
    return model, wrapper(ALL[name](model.named_parameters()), scale, **options)


def backward(model, optimizer, factor=1.0):
    optimizer.scale_loss(factor * loss_of(model, INPUTS)).backward()


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def assert_equal(got, expected):
    assert all(map(torch.equal, got, expected)) and len(got) == len(expected)


def step_by_pairs(model, optimizer, clip_norm):
    """Take the same step in TensorFlow's manner."""
    pairs = optimizer.compute_gradients(lambda: loss_of(model, INPUTS))
    lent = [torch.nn.Parameter(p.detach()) for _, p in pairs]
    for parameter, (gradient, _) in zip(lent, pairs, strict=True):
        parameter.grad = gradient.clone()
    clip_grad_norm_(lent, clip_norm)
    clipped = [p.grad for p in lent]
    optimizer.apply_gradients(zip(clipped, [p for _, p in pairs], strict=True))


@kinds
@pytest.mark.parametrize("name", ["SGD momentum", "Adam", "Adam fused", "TF1 Adam"])
def test_clipping_by_hand_is_clipping_what_compute_gradients_returns(kind, name):
    found = []
    for by_hand in (True, False):
        model, optimizer = started(kind, name)
        for _ in range(3):
            optimizer.zero_grad()
            if by_hand:
                backward(model, optimizer)
                optimizer.unscale_()
                clip_grad_norm_(optimizer.master_params(), 0.5)
                optimizer.step()
            else:
                step_by_pairs(model, optimizer, 0.5)
            assert optimizer.last_step.applied
        found.append(weights(model))
    assert_equal(*found)


@modes
def test_without_a_change_between_the_step_is_the_same_step(kind, options):
    found = []
    for by_hand in (True, False):
        model, optimizer = started(kind, clip_norm=0.5, **options)
        for _ in range(3):
            optimizer.zero_grad()
            backward(model, optimizer)
            if by_hand:
                optimizer.unscale_()
            optimizer.step()
            # The norm is taken of unscaled gradients once more.
            assert optimizer.last_step.norm > 0.5 > optimizer.last_step.clip_factor
        found.append(weights(model))
    for ours, theirs in zip(*found, strict=True):
        # Divided and clipped in two roundings instead of one; a weight in half
        # precision may then round to its neighbour.
        tolerance = 2**-6 if ours.dtype == torch.bfloat16 else 2**-10
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=1e-5)


@modes
def test_the_gradients_are_unscaled_in_place_and_once(kind, options):
    plain = started(kind, scale=1)[0]
    loss_of(plain, INPUTS).backward()
    model, optimizer = started(kind, **options)
    backward(model, optimizer)
    optimizer.unscale_()
    for parameter, bare in zip(
        optimizer.master_params(), plain.parameters(), strict=True
    ):
        # A half-precision gradient is rounded at another magnitude.
        torch.testing.assert_close(
            parameter.grad, bare.grad.float(), rtol=2**-7, atol=1e-3
        )
    grads = zip(model.parameters(), optimizer.master_params(), strict=True)
    assert all(torch.equal(parameter.grad, master.grad) for parameter, master in grads)
    with pytest.raises(RuntimeError):
        optimizer.unscale_()
    optimizer.step()
    assert all(optimizer.master(p).grad is None for p in halves(model, optimizer))


def halves(model, optimizer):
    if isinstance(optimizer, MixedPrecisionLossScaleOptimizer):
        return []
    return [p for p in model.parameters() if p.dtype != torch.float32]


@modes
@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("hide", [clip_grad_norm_, clip_grad_value_, None])
def test_an_overflow_is_not_hidden_by_clipping(kind, options, value, hide):
    scale = DynamicLossScale(1024.0)
    model, optimizer = started(kind, scale=scale, **options)
    backward(model, optimizer)
    model.a.bias.grad[0] = value
    before = weights(model)
    optimizer.unscale_()
    if hide is not None:
        hide(optimizer.master_params(), 1.0)
    optimizer.step()
    assert_equal(weights(model), before)
    assert not optimizer.last_step.applied
    assert optimizer.last_step.nonfinite == ("a.bias",)
    assert optimizer.loss_scale == 512 and optimizer.skipped_steps == 1


@kinds
def test_another_scaled_loss_before_the_step_is_refused(kind):
    model, optimizer = started(kind)
    backward(model, optimizer)
    optimizer.unscale_()
    with pytest.raises(RuntimeError):
        optimizer.scale_loss(loss_of(model, INPUTS))
    with torch.no_grad():
        assert optimizer.scale_loss(loss_of(model, INPUTS)) > 0
    before = weights(model)
    optimizer.step()
    assert optimizer.last_step.applied
    assert not all(map(torch.equal, weights(model), before))


@kinds
@pytest.mark.parametrize("clear", ["the optimizer", "to zeros", "the model"])
def test_clearing_the_gradients_begins_again(kind, clear):
    found = []
    for abandons in (True, False):
        model, optimizer = started(kind)
        if abandons:
            backward(model, optimizer, 3.0)
            optimizer.unscale_()
            if clear == "the model":
                model.zero_grad()
            else:
                optimizer.zero_grad(set_to_none=clear == "the optimizer")
        backward(model, optimizer)
        optimizer.unscale_()
        optimizer.step()
        found.append(weights(model))
    assert_equal(*found)


@kinds
@pytest.mark.parametrize("max_norm", [0.5, 1e9])
def test_clipping_the_model_is_clipping_what_the_optimizer_updates(kind, max_norm):
    found = []
    for whose in ("model", "optimizer"):
        model, optimizer = started(kind, "Adam")
        for _ in range(2):
            optimizer.zero_grad()
            backward(model, optimizer)
            optimizer.unscale_()
            every = (
                model.parameters() if whose == "model" else optimizer.master_params()
            )
            clip_grad_norm_(every, max_norm)
            optimizer.step()
        found.append(weights(model))
    assert_equal(*found)


@pytest.mark.parametrize("change", ["replaced", "cleared"])
def test_masters_see_a_change_of_the_models_own_gradients(change):
    model, optimizer = started("masters", "SGD")
    backward(model, optimizer)
    optimizer.unscale_()
    before, weight = weights(model), model.body.weight
    weight.grad = torch.zeros_like(weight) if change == "replaced" else None
    optimizer.step()
    assert torch.equal(weight, before[0])
    assert not torch.equal(model.a.weight, weights(model)[2] - 1)


def test_a_gradient_too_small_for_float16_can_be_read_and_clipped():
    weight = torch.nn.Parameter(torch.ones(4).half())
    sgd = torch.optim.SGD([weight], lr=1.0)
    optimizer = MixedPrecisionOptimizerWrapper(sgd, 2.0**16)
    optimizer.scale_loss((1e-9 * weight.float()).sum()).backward()
    optimizer.unscale_()
    assert weight.grad.dtype == torch.float32
    torch.testing.assert_close(weight.grad, torch.full((4,), 1e-9), rtol=2e-3, atol=0)
    optimizer.step()
    optimizer.zero_grad()
    weight.sum().backward()
    assert weight.grad.dtype == torch.float16


def test_apply_gradients_after_it_has_nothing_to_do_with_it():
    model, optimizer = started("masters")
    backward(model, optimizer)
    optimizer.unscale_()
    master = optimizer.master(model.body.weight)
    optimizer.apply_gradients([(torch.ones_like(master), master)])
    assert all(optimizer.master(p).grad is None for p in halves(model, optimizer))
    optimizer.zero_grad()
    backward(model, optimizer)
    optimizer.unscale_()


def test_logmax_sees_the_gradients_before_they_are_clipped():
    found = []
    for by_hand in (True, False):
        scaler = AutomaticLossScaler("LogMax", {"scale_max": 64.0})
        model, optimizer = started("masters", scale=scaler)
        backward(model, optimizer, 100.0)
        if by_hand:
            optimizer.unscale_()
            clip_grad_norm_(optimizer.master_params(), 1e-3)
        optimizer.step()
        found.append(scaler.state)
    assert found[0] == found[1]


def test_a_penalty_is_in_what_is_clipped():
    model, optimizer = started("masters", scale=8)
    penalty = mp_regularizer_wrapper(lambda weight: weight.square().sum())
    penalty(model.body.weight)
    backward(model, optimizer, 0.0)
    optimizer.unscale_()
    master = optimizer.master(model.body.weight)
    torch.testing.assert_close(master.grad, 2 * master.detach())
    optimizer.step()
    assert optimizer.last_step.applied


@kinds
def test_without_gradients_it_does_nothing(kind):
    _, optimizer = started(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.unscale_()
        optimizer.step()
    assert optimizer.last_step.reason == "no parameter had a gradient"
    assert optimizer.skipped_steps == 0


@modes
def test_a_backward_after_it_is_refused_before_anything_changes(kind, options):
    model, optimizer = started(kind, **options)
    before = weights(model)
    scaled = optimizer.scale_loss(loss_of(model, INPUTS))
    optimizer.unscale_()
    scaled.backward()
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="at unscale_"):
            optimizer.step()
    assert_equal(weights(model), before)
    optimizer.zero_grad()
    backward(model, optimizer)
    optimizer.unscale_()
    optimizer.step()
    assert optimizer.last_step.applied
