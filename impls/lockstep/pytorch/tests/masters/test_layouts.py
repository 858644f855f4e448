"""Masters of weights that are not contiguous, with torch's fused optimizers.

These pair the elements of a parameter, its gradient and its state by their places in
memory.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import Adagrad, AdamW

from lockstep.errors import UnsupportedError
from lockstep.pytorch import MixedPrecisionOptimizerWrapper

FUSED = {
    "Adagrad": lambda weights: Adagrad(weights, lr=0.1, fused=True),
    "AdamW": lambda weights: AdamW(weights, lr=0.1, fused=True),
}
everyone = pytest.mark.parametrize("name", FUSED)


def model_in(layout: torch.memory_format) -> nn.Module:
    torch.manual_seed(0)
    # 128 elements fill vector registers; others would have other bits.
    return nn.Conv2d(4, 4, (2, 4)).bfloat16().to(memory_format=layout)


def loss_of(model: nn.Module) -> torch.Tensor:
    """Return a loss whose gradients have the same bits in any layout."""
    weight = model.weight.float()
    factors = torch.linspace(-1, 1, weight.numel()).view(weight.shape)
    return (weight * factors).square().sum() + model.bias.float().sum()


def assert_same(train) -> None:
    """Training must not depend on the layout of the weights in memory."""
    contiguous = model_in(torch.contiguous_format)
    other = model_in(torch.channels_last)
    assert not other.weight.is_contiguous()
    for model in (contiguous, other):
        train(model)
    assert torch.equal(contiguous.weight, other.weight)


@everyone
@pytest.mark.parametrize("pairs_of", [torch.bfloat16, torch.float32, None])
def test_gradients_of_masters_lie_in_memory_as_the_masters_do(name, pairs_of) -> None:
    def train(model: nn.Module) -> None:
        fused = FUSED[name](model.parameters())
        optimizer = MixedPrecisionOptimizerWrapper(fused, 8.0)
        for _ in range(3):
            if pairs_of is not None:
                model.zero_grad()
                loss_of(model).backward()
                pairs = [(p.grad.to(pairs_of), p) for p in model.parameters()]
                optimizer.apply_gradients(pairs)
            else:
                optimizer.minimize(lambda: loss_of(model))

    assert_same(train)


@everyone
def test_the_state_of_an_optimizer_that_is_wrapped_later_does_too(name) -> None:
    def train(model: nn.Module) -> None:
        fused = FUSED[name](model.parameters())
        for _ in range(2):
            fused.zero_grad()
            loss_of(model).backward()
            fused.step()
        optimizer = MixedPrecisionOptimizerWrapper(fused, 8.0)
        for _ in range(3):
            optimizer.zero_grad()
            optimizer.scale_loss(loss_of(model)).backward()
            optimizer.step()

    assert_same(train)


def overlapping() -> tuple[nn.Parameter, nn.Parameter, nn.Parameter]:
    """Return two parameters in one place, and one beside them."""
    memory = torch.zeros(8, dtype=torch.float16)
    parts = memory[:4], memory[:4].view(2, 2), memory[4:]
    return tuple(map(nn.Parameter, parts))


def test_two_weights_in_one_place_are_refused_because_their_masters_would_differ():
    one, other, beside = overlapping()
    with pytest.raises(UnsupportedError, match="memory of their own"):
        MixedPrecisionOptimizerWrapper(torch.optim.SGD([one, beside, other], lr=1.0))
    sgd = torch.optim.SGD([one, beside], lr=1.0)
    optimizer = MixedPrecisionOptimizerWrapper(sgd)
    with pytest.raises(UnsupportedError, match="memory of their own"):
        optimizer.add_param_group({"params": [other]})
    assert [len(group["params"]) for group in sgd.param_groups] == [2]


def test_empty_weights_and_weights_in_float32_may_share_memory():
    empty = [nn.Parameter(torch.zeros(0, dtype=torch.float16)) for _ in range(2)]
    memory = torch.zeros(4)
    wide = [nn.Parameter(memory), nn.Parameter(memory.view(2, 2))]
    optimizer = MixedPrecisionOptimizerWrapper(torch.optim.SGD(empty + wide, lr=1.0))
    for parameter in wide:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert memory.tolist() == [-2.0] * 4
