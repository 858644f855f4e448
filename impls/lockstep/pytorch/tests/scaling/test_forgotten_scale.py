"""A loss that was never scaled, or only sometimes: told, or refused."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.distributed.checkpoint import state_dict as checkpoint
from torch.nn import Parameter

from lockstep.errors import UnsupportedError
from lockstep.pytorch import (
    AutomaticLossScaler,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    optimize_loss,
)

WRAPPERS = {
    "scaled": MixedPrecisionLossScaleOptimizer,
    "masters": MixedPrecisionOptimizerWrapper,
}
everyone = pytest.mark.parametrize("kind", WRAPPERS)
dtypes = pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)


def started(kind, dtype=torch.float16, scale="dynamic"):
    weight = Parameter(torch.ones(4, dtype=dtype))
    return weight, WRAPPERS[kind](torch.optim.SGD([weight], lr=0.1), scale)


def warnings_of(act):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    return [str(warning.message) for warning in caught]


@everyone
@dtypes
@pytest.mark.parametrize("scale", ["dynamic", 128.0, 0.5, "backoff"])
@pytest.mark.parametrize("factor", [1.0, 1e-9])
def test_a_scale_that_was_never_asked_for_is_told_once(kind, dtype, scale, factor):
    if kind == "scaled" and scale in (0.5, "backoff"):
        pytest.skip("not a scale of this wrapper")
    scale = AutomaticLossScaler() if scale == "backoff" else scale
    weight, optimizer = started(kind, dtype, scale)

    def three_steps():
        for _ in range(3):
            optimizer.zero_grad()
            (factor * weight.float()).sum().backward()
            optimizer.step()

    (told,) = warnings_of(three_steps)
    assert "scale_loss(loss)" in told


def by_scale_loss(weight, optimizer):
    optimizer.scale_loss(weight.float().sum()).backward()
    optimizer.step()


def by_minimize(weight, optimizer):
    optimizer.minimize(lambda: weight.float().sum())


def by_reading_the_scale(weight, optimizer):
    scale = optimizer.loss_scale
    (weight.float().sum() * scale).backward()
    weight.grad /= scale
    optimizer.step()


def by_optimize_loss(weight, optimizer):
    optimize_loss(lambda: weight.float().sum(), optimizer, None, 0.1, [weight])()


def by_a_checkpoint(weight, optimizer):
    module = torch.nn.Module()
    module.weight = weight
    saved = checkpoint.get_optimizer_state_dict(module, optimizer)
    checkpoint.set_optimizer_state_dict(module, optimizer, saved)


WAYS = [
    by_scale_loss,
    by_minimize,
    by_reading_the_scale,
    by_optimize_loss,
    by_a_checkpoint,
]


@everyone
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_who_asked_for_it_is_not_told(kind, way):
    weight, optimizer = started(kind, torch.float32)
    assert not warnings_of(lambda: way(weight, optimizer))


@everyone
def test_the_scale_1_need_not_be_asked_for(kind):
    weight, optimizer = started(kind, torch.float32, 1.0)
    weight.sum().backward()
    assert not warnings_of(optimizer.step)


@everyone
@dtypes
@pytest.mark.parametrize("steps", [0, 2])
def test_scaled_gradients_added_to_unscaled_ones_are_refused(kind, dtype, steps):
    weight, optimizer = started(kind, dtype, 8.0)
    for _ in range(steps):
        optimizer.zero_grad()
        optimizer.scale_loss(weight.float().sum()).backward()
        optimizer.step()
    optimizer.zero_grad()
    before = weight.detach().clone()
    weight.float().sum().backward()
    optimizer.scale_loss(weight.float().sum()).backward()
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="each micro-batch"):
            optimizer.step()
    assert torch.equal(weight, before)
    optimizer.zero_grad()
    optimizer.scale_loss(weight.float().sum()).backward()
    optimizer.step()
    assert optimizer.last_step.applied


@everyone
@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_of_before_may_be_cleared_in_between(kind, set_to_none):
    weight, optimizer = started(kind, scale=8.0)
    for _ in range(3):
        weight.float().sum().backward()  # such as another optimizer's loss
        loss = optimizer.scale_loss(weight.float().sum())
        optimizer.zero_grad(set_to_none)
        loss.backward()
        optimizer.step()
        assert optimizer.last_step.applied


@everyone
def test_an_infinite_limit_measures_the_norm_alone(kind):
    weight = Parameter(torch.zeros(2))
    sgd = torch.optim.SGD([weight], lr=1.0)
    optimizer = WRAPPERS[kind](sgd, 8.0, clip_norm=float("inf"))
    optimizer.scale_loss((weight * torch.tensor([3e4, 4e4])).sum()).backward()
    optimizer.step()
    assert weight.tolist() == [-3e4, -4e4]
    report = optimizer.last_step
    assert (report.norm, report.clip_factor) == (5e4, 1.0)
