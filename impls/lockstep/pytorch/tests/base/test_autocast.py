"""Steps inside a block of ``torch.autocast`` have the same bits as outside of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import Parameter
from torch.optim import SGD, Optimizer

from lockstep.pytorch import (
    AdamOptimizer,
    AutomaticLossScaler,
    FtrlOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    optimize_loss,
)
from lockstep.pytorch.tests.masters.models import halves

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
autocasts = pytest.mark.parametrize("autocast", [torch.float16, torch.bfloat16])


@halves
@autocasts
@pytest.mark.parametrize("count", [2, 20])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_the_same_under_autocast(name, count, autocast, dtype):
    weights = [
        [Parameter(torch.ones(k % 2 + 1, 2, dtype=dtype)) for k in range(count)]
        for _ in range(2)
    ]
    for enabled, own in zip([False, True], weights, strict=True):
        optimizer = OPTIMIZERS[name](own)
        for parameter in own:
            parameter.grad = torch.full_like(parameter, 0.5)
        own[0].grad.zero_()
        with torch.autocast("cpu", autocast, enabled=enabled):
            optimizer.step()
    for one, other in zip(*weights, strict=True):
        assert torch.equal(one, other)


@halves
@autocasts
def test_an_automatic_scaler_checks_gradients_under_autocast(autocast, dtype):
    weight = Parameter(torch.ones(2, dtype=dtype))
    scaler = AutomaticLossScaler("LogMax")
    with torch.autocast("cpu", autocast):
        flags = scaler.check_grads([(torch.tensor([1, -3], dtype=dtype), weight)])
        scaler.update_op(*flags)
    assert flags[0].item() is False
    assert flags[1].item() == 3


@halves
@autocasts
def test_sparse_micro_batches_are_added_under_autocast(autocast, dtype):
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
    with torch.autocast("cpu", autocast):
        step()
        step()
    assert torch.equal(table.weight[1], torch.full((2,), -1.0, dtype=dtype))
    assert torch.equal(table.weight[0], torch.ones(2, dtype=dtype))
