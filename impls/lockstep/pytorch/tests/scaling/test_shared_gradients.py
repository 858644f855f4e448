"""Gradients that share elements, as ``torch.autograd.grad`` returns them."""

import pytest
import torch
from torch import nn

from lockstep.pytorch import (
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
)

WRAPPERS = [MixedPrecisionLossScaleOptimizer, MixedPrecisionOptimizerWrapper]


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.5}])
@pytest.mark.parametrize("expanded", [False, True])
def test_they_are_unscaled_and_clipped_once(wrapper, fused, options, expanded):
    """Without a look, each parameter would divide the one gradient again."""
    first, second = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    sgd = torch.optim.SGD([first, second], lr=1.0, fused=fused)
    optimizer = wrapper(sgd, 8, **options)
    sums = first.sum() + second.sum() if expanded else (first + second).sum()
    found = torch.autograd.grad(optimizer.scale_loss(sums), [first, second])
    first.grad, second.grad = found
    optimizer.step()
    expected = -0.5 / 6**0.5 if options else -1.0
    both = torch.cat([first, second]).detach()
    torch.testing.assert_close(both, torch.full((6,), expected))


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_overlapping_gradients_are_unscaled_once(wrapper):
    """As in a transformer on a batch of one: a learned token after the others."""
    position, token = nn.Parameter(torch.zeros(3, 2)), nn.Parameter(torch.zeros(1, 2))
    optimizer = wrapper(torch.optim.SGD([position, token], lr=1.0), 8)
    tokens = torch.cat([torch.ones(1, 2, 2), token[None]], 1) + position[None]
    optimizer.scale_loss((3 * tokens).sum()).backward()
    optimizer.step()
    assert position.tolist() == [[-3.0, -3.0]] * 3
    assert token.tolist() == [[-3.0, -3.0]]


def test_a_step_that_never_waits_unscales_them_once():
    first, second = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    sgd = torch.optim.SGD([first, second], lr=1.0, fused=True)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, 8, capturable=True)
    loss = optimizer.scale_loss((first + second).sum())
    first.grad, second.grad = torch.autograd.grad(loss, [first, second])
    optimizer.step()
    assert first.tolist() == second.tolist() == [-1.0] * 3
