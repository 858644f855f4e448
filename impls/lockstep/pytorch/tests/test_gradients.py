"""Gradients that wrappers around, autocast or autograd leave behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD, Optimizer

from lockstep import pytorch as ls
from lockstep.pytorch import (
    AdamOptimizer,
    AutomaticLossScaler,
    FtrlOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    optimize_loss,
)
from lockstep.pytorch.tests.half_models import halves

AROUND = {
    "multitask": ls.MultitaskOptimizerWrapper,
    "rows": lambda opt: ls.VariableClippingOptimizer(opt, {}, 1.0),
    "both": lambda opt: ls.MultitaskOptimizerWrapper(AROUND["rows"](opt)),
}
everywhere = pytest.mark.parametrize("around", AROUND)


def adam(*weights: Parameter, fused: bool = False) -> torch.optim.Adam:
    return torch.optim.Adam(weights, lr=0.1, fused=fused)


@everywhere
def test_a_loss_scale_inside_scales_the_loss(around) -> None:
    weight = Parameter(torch.ones(3))
    scaled = ls.MixedPrecisionLossScaleOptimizer(adam(weight), 2.0**14)
    optimizer = AROUND[around](scaled)

    def loss() -> torch.Tensor:
        # Without a scale the gradient 1e-8 is 0 in float16.
        return (weight.half() * 1e-3 * 1e-5).float().sum()

    ((gradient, _),) = optimizer.compute_gradients(loss)
    ((expected, _),) = scaled.compute_gradients(loss)
    assert torch.equal(gradient, expected)
    assert (gradient > 0).all()


@everywhere
@pytest.mark.parametrize("fused", [False, True])
def test_given_gradients_stay_as_they_are(around, fused) -> None:
    weight = Parameter(torch.ones(3))
    scaled = ls.MixedPrecisionLossScaleOptimizer(
        adam(weight, fused=fused), 8.0, clip_norm=0.5
    )
    gradient = torch.ones(3)
    AROUND[around](scaled).apply_gradients([(gradient, weight)])
    assert (gradient == 1).all()
    assert (weight != 1).all()
    # A step in a loop still clips in place.
    weight.grad = torch.ones(3)
    scaled.step()
    assert (weight.grad != 1).all()


OPTIMIZERS: dict[str, Callable[[list[Parameter]], Optimizer]] = {
    "Adam": lambda weights: AdamOptimizer(weights, 0.25),
    "Ftrl": lambda weights: FtrlOptimizer(weights, 0.25),
    "masters": lambda weights: MixedPrecisionOptimizerWrapper(
        SGD(weights, 0.25), 8.0, clip_norm=1.0
    ),
    "multitask": lambda weights: MultitaskOptimizerWrapper(SGD(weights, 0.25)),
    "scaled": lambda weights: MixedPrecisionLossScaleOptimizer(
        SGD(weights, 0.25), 8.0, clip_norm=1.0
    ),
}


@halves
@pytest.mark.parametrize("count", [2, 20])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_the_same_under_autocast(name, count, dtype):
    weights = [
        [Parameter(torch.ones(k % 2 + 1, 2, dtype=dtype)) for k in range(count)]
        for _ in range(2)
    ]
    for enabled, own in zip([False, True], weights, strict=True):
        optimizer = OPTIMIZERS[name](own)
        for parameter in own:
            parameter.grad = torch.full_like(parameter, 0.5)
        own[0].grad.zero_()
        with torch.autocast("cpu", dtype, enabled=enabled):
            optimizer.step()
    for one, other in zip(*weights, strict=True):
        assert torch.equal(one, other)


@halves
def test_an_automatic_scaler_checks_gradients_under_autocast(dtype):
    weight = Parameter(torch.ones(2, dtype=dtype))
    scaler = AutomaticLossScaler("LogMax")
    with torch.autocast("cpu", dtype):
        flags = scaler.check_grads([(torch.tensor([1, -3], dtype=dtype), weight)])
        scaler.update_op(*flags)
    assert flags[0].item() is False
    assert flags[1].item() == 3


@halves
def test_sparse_micro_batches_are_added_under_autocast(dtype):
    table = torch.nn.Embedding(3, 2, sparse=True, dtype=dtype)
    # So every sum is exact, in whatever order the rows are subtracted.
    torch.nn.init.ones_(table.weight)
    rows = torch.tensor([1, 1])
    step = optimize_loss(
        lambda: table(rows).float().sum(),
        lambda parameters, lr: SGD(parameters, lr),
        None,
        1.0,
        [table.weight],
        iter_size=2,
    )
    with torch.autocast("cpu", dtype):
        step()
        step()
    assert torch.equal(table.weight[1], torch.full((2,), -1.0, dtype=dtype))
    assert torch.equal(table.weight[0], torch.ones(2, dtype=dtype))


OPTIMIZERS_GRADIENTS: dict[str, Callable[[list[Tensor]], Optimizer]] = {
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
    opt = STACKS[stack](OPTIMIZERS_GRADIENTS[optimizer]([reached, given]))
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
@pytest.mark.parametrize("optimizer", OPTIMIZERS_GRADIENTS)
@pytest.mark.parametrize("stack", STACKS)
def test_it_steps_as_its_detached_copy(
    stack: str, optimizer: str, value: float
) -> None:
    gradient = torch.full((2, 2), value)
    expected = train(stack, optimizer, gradient)
    actual = train(stack, optimizer, gradient.clone().requires_grad_())
    for one, other in zip(actual, expected, strict=True):
        assert torch.equal(one, other)
