"""``optimize_loss`` gets unscaled gradients in the buffers of the masters."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Parameter

from lockstep.pytorch import (
    MixedPrecisionOptimizerWrapper,
    mp_regularizer_wrapper,
    optimize_loss,
)
from lockstep.pytorch.gradients import gradients_for_step


def weights_of(seed: int) -> list[Parameter]:
    """Return a half-precision table, two matrices, and a vector in float32."""
    draw = torch.Generator().manual_seed(seed)
    shapes = [(5, 3), (4, 3), (2, 2)]
    half = [Parameter(torch.randn(s, generator=draw).half()) for s in shapes]
    return [*half, Parameter(torch.randn(3, generator=draw))]


def wrapped(weights: list[Parameter], scale: float) -> MixedPrecisionOptimizerWrapper:
    return MixedPrecisionOptimizerWrapper(torch.optim.SGD(weights, lr=0.1), scale)


def loss_of(weights: list[Parameter], factor: float = 1.0) -> torch.Tensor:
    """Return a loss with a sparse, a dense, an absent and a float32 gradient."""
    table, matrix, _, vector = weights
    rows = torch.tensor([0, 2, 2])
    looked_up = torch.nn.functional.embedding(rows, table, sparse=True).float()
    products = looked_up @ matrix.float().T
    return factor * (products.square().sum() + (vector * products.sum()).sum())


def dense(gradient: torch.Tensor | None) -> torch.Tensor | None:
    if gradient is None or not gradient.is_sparse:
        return gradient
    return gradient.to_dense()


# A power of two divides exactly; the other is rounded.
@pytest.mark.parametrize("scale", [1024.0, 1000.0])
@pytest.mark.parametrize("has_penalty", [False, True])
def test_gradients_equal_those_of_compute_gradients(
    has_penalty: bool, scale: float
) -> None:
    weights = weights_of(0)
    if has_penalty:
        mp_regularizer_wrapper(lambda w: w.square().sum())(weights[1])
    optimizer = wrapped(weights, scale)
    plain = optimizer.compute_gradients(lambda: loss_of(weights), weights)
    own = gradients_for_step(optimizer, lambda: loss_of(weights), weights)
    for (expected, master), (gradient, variable) in zip(plain, own, strict=True):
        assert variable is master
        if expected is None:
            assert gradient is None
        else:
            assert gradient.dtype == torch.float32
            assert torch.equal(dense(gradient), dense(expected))


def test_compute_gradients_returns_new_memory_each_time() -> None:
    weights = weights_of(0)
    optimizer = wrapped(weights, 8.0)
    first = optimizer.compute_gradients(lambda: loss_of(weights), weights)
    before = [None if g is None else dense(g).clone() for g, _ in first]
    gradients_for_step(optimizer, lambda: loss_of(weights, 3.0), weights)
    optimizer.compute_gradients(lambda: loss_of(weights, 5.0), weights)
    for copy, (gradient, _) in zip(before, first, strict=True):
        assert copy is None or torch.equal(copy, dense(gradient))


def test_a_weight_without_gradient_gets_none_from_the_step_before() -> None:
    weights = weights_of(0)
    step = optimize_loss(
        lambda names: sum(weights[k].float().sum() for k in names),
        torch.optim.SGD,
        {},
        1.0,
        weights,
        dtype="mixed",
        loss_scaling=8.0,
    )
    step([1, 2])
    before = weights[2].detach().clone()
    step([1])
    assert torch.equal(weights[2], before)


def test_sums_of_micro_batches_are_not_overwritten() -> None:
    both = []
    for size in (1, 2):
        weights = weights_of(1)
        step = optimize_loss(
            lambda factor, weights=weights: loss_of(weights, factor),
            torch.optim.SGD,
            {},
            0.01,
            weights,
            dtype="mixed",
            loss_scaling=8.0,
            iter_size=size,
        )
        for factor in [1.5] if size == 1 else [1.0, 2.0]:
            step(factor)
        both.append(weights)
    for one, other in zip(*both, strict=True):
        # Gradients of 1 and 2 have the mean 1.5, but their roundings to float16 differ.
        torch.testing.assert_close(one, other, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("clip", [None, 0.5], ids=["bare", "clipped"])
def test_optimize_loss_steps_on_flat_memory(clip: float | None) -> None:
    weights = weights_of(2)[1:3]
    step = optimize_loss(
        lambda: sum(w.float().square().sum() for w in weights),
        torch.optim.Adam,
        {"foreach": True},
        0.01,
        weights,
        dtype="mixed",
        loss_scaling=8.0,
        clip_gradients=clip,
    )
    for _ in range(3):
        step()
    means = [entry["exp_avg"] for entry in step.optimizer.state.values()]
    first, second = [mean.untyped_storage().data_ptr() for mean in means]
    assert first == second
