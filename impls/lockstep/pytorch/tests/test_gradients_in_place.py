"""``optimize_loss`` overwrites gradients, and a fused optimizer clips as it updates.

No tensor that something else holds changes, and the step is that of separate passes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from lockstep.pytorch import MixedPrecisionLossScaleOptimizer, optimize_loss

MIXED = {"dtype": "mixed", "loss_scaling": 8.0}
CLIPPED = {"clip_gradients": 0.5}
SGD, FUSED = ("SGD", {}), (torch.optim.SGD, {"fused": True})
ALL = pytest.mark.parametrize(
    ("optimizer", "options"),
    [(SGD, CLIPPED), (SGD, {**MIXED, **CLIPPED}), (FUSED, {**MIXED, **CLIPPED})],
    ids=["float32", "mixed", "fused"],
)
SCALES = [
    {"loss_scaling": 0.3},
    {"loss_scaling": "Backoff", "loss_scaling_params": {"step_window": 2}},
    {"loss_scaling": "LogMax"},
]
LIMITS = [{}, {"clip_gradients": 0.5}, {"clip_gradients": 100.0}]


class Stored(torch.autograd.Function):
    """A loss whose gradient is a tensor that the caller keeps."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, gradient: Tensor) -> Tensor:
        ctx.gradient = gradient
        return weight.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        return ctx.gradient, None


@ALL
def test_a_gradient_that_something_else_holds_is_not_overwritten(
    optimizer, options
) -> None:
    weight, gradient = Parameter(torch.zeros(2)), torch.tensor([3.0, 4.0])
    step = optimize_loss(
        lambda: Stored.apply(weight, gradient), *optimizer, 1.0, [weight], **options
    )
    step()
    assert gradient.tolist() == [3.0, 4.0]


@ALL
def test_parameters_with_one_gradient_in_common_are_clipped_once(
    optimizer, options
) -> None:
    # Autograd hands the same expanded tensor to both.
    weights = [Parameter(torch.zeros(2)) for _ in range(2)]
    step = optimize_loss(
        lambda: (weights[0] + weights[1]).sum(), *optimizer, 1.0, weights, **options
    )
    step()
    # Four elements of 1 have the norm 2, so each becomes 0.25.
    assert [w.tolist() for w in weights] == [[-0.25, -0.25]] * 2


def summed_views(a: Tensor, b: Tensor) -> Tensor:
    return a[None] + b[None]


def summed_embeddings(a: Tensor, b: Tensor) -> Tensor:
    rows = torch.tensor([0, 1])
    embedding = torch.nn.functional.embedding
    return embedding(rows, a, sparse=True) + embedding(rows, b, sparse=True)


@ALL
@pytest.mark.parametrize("model", [summed_views, summed_embeddings])
def test_gradients_that_are_views_of_one_tensor_are_clipped_once(
    model, optimizer, options
) -> None:
    # ``backward`` copies a gradient that two parameters share, but no views of one.
    if model is summed_embeddings and optimizer is FUSED:
        pytest.skip("fused SGD takes no sparse gradients")
    weights = [Parameter(torch.zeros(2, 1)) for _ in range(2)]
    step = optimize_loss(
        lambda: (model(*weights) * torch.ones(2, 1)).sum(),
        *optimizer,
        1.0,
        weights,
        **options,
    )
    step()
    assert [w.tolist() for w in weights] == [[[-0.25], [-0.25]]] * 2


@ALL
def test_grad_stays_what_it_was_after_a_loss_that_fails(optimizer, options) -> None:
    weight = Parameter(torch.ones(2))
    kept = weight.grad = torch.tensor([5.0, 6.0])

    def loss() -> Tensor:
        product = weight.square().sum()
        product.register_hook(lambda _: 1 / 0)
        return product

    step = optimize_loss(loss, *optimizer, 0.1, [weight], **options)
    with pytest.raises(ZeroDivisionError):
        step()
    assert weight.grad is kept
    assert weight.tolist() == [1.0, 1.0]


def test_gradients_that_the_loss_computes_itself_stay_as_they_are() -> None:
    weight = Parameter(torch.tensor([3.0, 4.0]).half())
    inside = []

    def loss() -> Tensor:
        pairs = step.optimizer.compute_gradients(weight.square().sum(), [weight])
        inside.append(pairs[0][0])
        return weight.square().sum()

    step = optimize_loss(loss, "SGD", {}, 0.1, [weight], **MIXED, clip_gradients=0.5)
    step()
    assert inside[0].tolist() == [6.0, 8.0]
    assert weight.grad is None


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "not fused"])
def test_gradients_whose_squares_overflow_are_clipped_to_zero(fused) -> None:
    weight = Parameter(torch.ones(2))
    step = optimize_loss(
        lambda: (weight * 1e30).sum(),
        torch.optim.SGD,
        {"fused": fused},
        1.0,
        [weight],
        **MIXED,
        clip_gradients=1.0,
    )
    step()
    assert weight.tolist() == [1.0, 1.0]
    assert step.last_step.applied


def test_a_hook_of_the_optimizer_sees_clipped_gradients() -> None:
    weight, seen = Parameter(torch.zeros(2)), []
    step = optimize_loss(
        lambda: (weight * torch.tensor([3.0, 4.0])).sum(),
        torch.optim.SGD,
        {"fused": True},
        1.0,
        [weight],
        **MIXED,
        clip_gradients=2.5,
    )
    step()
    step.optimizer.register_step_pre_hook(lambda *_: seen.append(weight.grad.tolist()))
    step()
    assert seen == [[1.5, 2.0]]
    assert weight.tolist() == [-3.0, -4.0]


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "not fused"])
def test_a_wrapper_clips_by_its_own_norm_after_the_step_has_clipped(fused) -> None:
    weight = Parameter(torch.zeros(2))

    def make(parameters: list[Tensor], lr: float) -> torch.optim.Optimizer:
        sgd = torch.optim.SGD(parameters, lr=lr, fused=fused)
        return MixedPrecisionLossScaleOptimizer(sgd, 8.0, clip_norm=0.5)

    step = optimize_loss(
        lambda: (weight * torch.tensor([3.0, 4.0])).sum(),
        make,
        {},
        1.0,
        [weight],
        clip_gradients=2.5,
    )
    step()
    torch.testing.assert_close(weight.detach(), torch.tensor([-0.3, -0.4]))
    assert step.optimizer.last_step.norm == pytest.approx(2.5)


class Fussy(torch.optim.SGD):
    """A fused optimizer that fails as long as ``fails``."""

    fails = True

    def step(self, closure=None):
        if self.fails:
            raise MemoryError
        return super().step(closure)


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
@pytest.mark.parametrize("clip", LIMITS, ids=str)
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


def training_step(count: int, optimizer: str, options: dict[str, Any]) -> Any:
    """Return a step on so many parameters, half of precision if it is mixed."""
    dtype = torch.float16 if "dtype" in options else torch.float32
    weights = [Parameter(torch.ones(4, dtype=dtype)) for _ in range(count)]

    def loss() -> torch.Tensor:
        return torch.cat(weights).float().square().sum()

    rate = 0.01
    return optimize_loss(
        loss, optimizer, {}, lambda _: rate, var_list=weights, **options
    )


def calls_of(step: Callable[[], Any]) -> int:
    """Return how many Python functions the sixth step enters."""
    for _ in range(5):
        step()
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        step()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    ("optimizer", "options", "most"),
    [("SGD", {}, 4), ("Adam", {}, 4), ("Adam", {**MIXED, "clip_gradients": 1.0}, 6)],
    ids=["SGD", "Adam", "mixed"],
)
def test_calls_for_each_parameter(optimizer, options, most) -> None:
    few, many = (calls_of(training_step(n, optimizer, options)) for n in (20, 40))
    assert many - few <= 20 * most
