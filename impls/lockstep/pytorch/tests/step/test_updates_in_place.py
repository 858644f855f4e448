"""Steps of ``optimize_loss`` in which a fused optimizer unscales and clips."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from lockstep.pytorch import optimize_loss

MIXED = {"dtype": "mixed", "loss_scaling": 8.0}
SCALES = [
    {"loss_scaling": 0.3},
    {"loss_scaling": "Backoff", "loss_scaling_params": {"step_window": 2}},
    {"loss_scaling": "LogMax"},
]


class Fussy(torch.optim.SGD):
    """A fused optimizer that fails as long as ``fails``."""

    fails = True

    def step(self, closure=None):
        if self.fails:
            raise MemoryError
        return super().step(closure)


class Around(torch.optim.Optimizer):
    """An optimizer around another one, as frameworks make it: without own hooks."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner

    param_groups = property(lambda self: self.inner.param_groups)
    state = property(lambda self: self.inner.state)
    defaults = property(lambda self: self.inner.defaults)

    def step(self, closure=None):
        return self.inner.step(closure)


def weights_of(dtype: torch.dtype) -> list[Parameter]:
    """Return three weights; the loss does not depend on the last one."""
    draw = torch.Generator().manual_seed(0)
    return [Parameter(torch.randn(4, 3, generator=draw).to(dtype)) for _ in range(3)]


def training(weights: list[Parameter], fused: bool = True, **options: Any) -> Any:
    """Return a step; its argument multiplies the loss."""

    def loss(factor: float) -> Tensor:
        return factor * sum(w.float().pow(3).sum() for w in weights[:2])

    sgd = torch.optim.SGD, {"fused": fused, "momentum": 0.9}
    return optimize_loss(loss, *sgd, 0.1, weights, **{**MIXED, **options})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("scale", SCALES, ids=["below one", "Backoff", "LogMax"])
@pytest.mark.parametrize("clip", [{}, {"clip_gradients": 0.5}], ids=["", "clipped"])
def test_the_step_is_that_of_an_optimizer_that_is_not_fused(dtype, scale, clip):
    ended = []
    for fused in (True, False):
        weights = weights_of(dtype)
        step = training(weights, fused, **scale, **clip)
        reports = []
        for factor in (1.0, float("inf"), 1.0, 30.0, 0.1):
            step(factor)
            reports.append((step.last_step.applied, step.last_step.reason))
        masters = [step.optimizer.master(weight).detach() for weight in weights]
        ended.append((masters, reports, step.global_step.item()))
    (masters, *rest), (others, *other_rest) = ended
    assert rest == other_rest
    for one, other in zip(masters, others, strict=True):
        # Two roundings of float32 in each step, beside one.
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_step_of_the_optimizer_that_fails_leaves_nothing_behind() -> None:
    ended = []
    for failures in (0, 1):
        weights = weights_of(torch.float32)
        fussy = Fussy(weights, lr=0.5, fused=True)
        step = optimize_loss(
            lambda weights=weights: sum(w.pow(2).sum() for w in weights),
            fussy,
            None,
            0.5,
            clip_gradients=1.0,
            **MIXED,
        )
        for _ in range(failures):
            with pytest.raises(MemoryError):
                step()
            assert step.global_step == 0
            assert all(w.grad is None for w in weights)
            assert step.optimizer.unscaled_by_hand is None
        fussy.fails = False
        step()
        # Gradients of this loop contain no scale, and must not be divided.
        sum(w.sum() for w in weights).backward()
        step.optimizer.step()
        ended.append([w.detach() for w in weights])
    for one, other in zip(*ended, strict=True):
        assert torch.equal(one, other)


def test_other_parameters_of_the_optimizer_do_not_move() -> None:
    weights = weights_of(torch.float32)
    weights[2].grad = torch.ones(4, 3)
    before = weights[2].detach().clone()
    sgd = torch.optim.SGD(weights, lr=0.1, fused=True)
    step = optimize_loss(lambda: weights[0].sum(), sgd, None, 0.1, weights[:2], **MIXED)
    step()
    assert torch.equal(weights[2], before)
    assert torch.equal(weights[2].grad, torch.ones(4, 3))
    assert not torch.equal(weights[0], before)
    assert step.last_step.applied


def test_a_loss_that_the_user_has_scaled_is_not_scaled_again() -> None:
    weight = Parameter(torch.zeros(2))
    step = optimize_loss(
        lambda: step.optimizer.scale_loss(weight.sum()),
        torch.optim.SGD,
        {"fused": True},
        1.0,
        [weight],
        **MIXED,
    )
    step()
    assert weight.tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("loss", [3.0, torch.ones(2, requires_grad=True)], ids=str)
def test_a_wrong_loss_is_refused_before_anything_changes(loss) -> None:
    weight = Parameter(torch.zeros(2))
    sgd = torch.optim.SGD([weight], lr=0.25, fused=True)
    step = optimize_loss(lambda: loss, sgd, None, 1.0, [weight], **MIXED)
    with pytest.raises((TypeError, ValueError)):
        step()
    assert sgd.param_groups[0]["lr"] == 0.25
    assert step.global_step == 0


def test_an_optimizer_of_a_framework_without_hooks_is_used_as_the_one_inside() -> None:
    ended = []
    for around in (lambda optimizer: optimizer, Around):
        weights = weights_of(torch.float32)
        adam = around(torch.optim.Adam(weights[:2], lr=0.1))
        loss = lambda weights=weights: weights[0].mul(weights[1]).sum()  # noqa: E731
        step = optimize_loss(loss, adam, None, 0.1, **MIXED)
        for _ in range(3):
            step()
        ended.append(weights)
    for one, other in zip(*ended, strict=True):
        assert torch.equal(one, other)
