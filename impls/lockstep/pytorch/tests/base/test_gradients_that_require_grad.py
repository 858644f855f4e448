"""A gradient may itself require grad: the step is the one of its detached copy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.pytorch import (
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)

OPTIMIZERS: dict[str, Callable[[list[Tensor]], Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "fused sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "foreach adam": lambda p: torch.optim.Adam(p, lr=0.1, foreach=True),
    "fused adam": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
}


def clipped(opt: Optimizer) -> Optimizer:
    """Clip the rows of the first parameter."""
    first = opt.param_groups[0]["params"][0]
    return VariableClippingOptimizer(opt, {first: [1]}, 1.0)


def scaled(opt: Optimizer) -> Optimizer:
    return MixedPrecisionLossScaleOptimizer(opt, 8.0)


def masters(opt: Optimizer) -> Optimizer:
    return MixedPrecisionOptimizerWrapper(opt, 8.0)


STACKS: dict[str, Callable[[Optimizer], Optimizer]] = {
    "multitask": MultitaskOptimizerWrapper,
    "rows": clipped,
    "scale": scaled,
    "scale of multitask": lambda o: scaled(MultitaskOptimizerWrapper(o)),
    "scale of rows of multitask": lambda o: scaled(
        clipped(MultitaskOptimizerWrapper(o))
    ),
    "multitask of scale": lambda o: MultitaskOptimizerWrapper(scaled(o)),
    "masters": masters,
    "masters of multitask": lambda o: masters(MultitaskOptimizerWrapper(o)),
}


def train(stack: str, optimizer: str, gradient: Tensor) -> list[Tensor]:
    """Take two steps with ``gradient`` beside a parameter that backward reaches."""
    half = stack.startswith("masters")
    dtype = torch.float16 if half else torch.float32
    reached, given = (
        torch.nn.Parameter(torch.full((2, 2), 0.5, dtype=dtype)) for _ in range(2)
    )
    opt = STACKS[stack](OPTIMIZERS[optimizer]([reached, given]))
    for _ in range(2):
        opt.zero_grad()
        loss = (reached**2).sum()
        scale = getattr(opt, "scale_loss", None)
        (scale(loss) if scale else loss).backward()
        value = gradient.detach().clone().to(dtype)
        given.grad = value.requires_grad_(gradient.requires_grad)
        opt.step()
    return [
        reached.detach(),
        given.detach(),
        *(p.grad.detach() for p in (reached, given)),
    ]


@pytest.mark.parametrize("value", [0.0, 2.0])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("stack", STACKS)
def test_it_steps_as_its_detached_copy(
    stack: str, optimizer: str, value: float
) -> None:
    gradient = torch.full((2, 2), value)
    expected = train(stack, optimizer, gradient)
    actual = train(stack, optimizer, gradient.clone().requires_grad_())
    for one, other in zip(actual, expected, strict=True):
        assert torch.equal(one, other)
