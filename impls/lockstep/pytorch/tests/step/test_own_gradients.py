"""``optimize_loss`` overwrites gradients, but no tensor that something else holds."""

from __future__ import annotations

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
def test_grad_stays_what_it_was(optimizer, options) -> None:
    weight = Parameter(torch.ones(2))
    kept = weight.grad = torch.tensor([5.0, 6.0])
    step = optimize_loss(
        lambda: weight.square().sum(), *optimizer, 0.1, [weight], **options
    )
    step()
    assert weight.grad is kept
    assert kept.tolist() == [5.0, 6.0]


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


@pytest.mark.parametrize("clip", [0.5, 100.0], ids=["above", "below"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_fused_optimizer_that_clips_as_it_updates_gives_the_same_step(
    clip, dtype
) -> None:
    ended = []
    for fused in (True, False):
        draw = torch.Generator().manual_seed(0)
        start = [torch.randn(4, 3, generator=draw) for _ in range(3)]
        weights = [Parameter(value.to(dtype)) for value in start]
        step = optimize_loss(
            lambda weights=weights: sum(w.float().pow(3).sum() for w in weights),
            torch.optim.SGD,
            {"fused": fused, "momentum": 0.9},
            0.1,
            weights,
            **MIXED,
            clip_gradients=clip,
        )
        assert step.updates_in_place() is fused
        for _ in range(4):
            step()
        ended.append([step.optimizer.master(w).detach() for w in weights])
    for one, other in zip(*ended, strict=True):
        # One rounding of gradient / (1 / factor) beside one of gradient x factor.
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


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
