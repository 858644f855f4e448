"""Values that make no sense are a sentence, not torch's own error or a silent step."""

import math

import pytest
import torch
from torch import nn

from lockstep import pytorch as lockstep
from lockstep.errors import LockstepError


def weight(dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.ones(2, dtype=dtype))


def sgd(parameter: nn.Parameter | None = None) -> torch.optim.SGD:
    parameter = weight() if parameter is None else parameter
    return torch.optim.SGD([("w", parameter)], lr=0.1)


def scaled(scale: object = 8) -> lockstep.MixedPrecisionLossScaleOptimizer:
    return lockstep.MixedPrecisionLossScaleOptimizer(sgd(), scale)


def mixed() -> lockstep.MixedPrecisionOptimizerWrapper:
    return lockstep.MixedPrecisionOptimizerWrapper(sgd(), 8)


PAIRS = [
    None,
    5,
    "ab",
    torch.ones(2, 2),
    [weight()],
    [torch.tensor([1.0, math.nan])],
    [(1.0, weight())],
    [(torch.ones(2, dtype=torch.int32), weight())],
    [(torch.ones(2, dtype=torch.complex64), weight())],
]


@pytest.mark.parametrize("pairs", PAIRS)
def test_a_scaler_looks_at_nothing_but_pairs_of_real_gradients(pairs):
    with pytest.raises(LockstepError, match=r"AutomaticLossScaler.check_grads: exp"):
        lockstep.AutomaticLossScaler.check_grads(pairs)


@pytest.mark.parametrize("scale", [math.nan, 0.0, -1.0, "x"])
def test_a_saved_scaler_has_a_scale(scale):
    scaler = lockstep.AutomaticLossScaler()
    with pytest.raises(ValueError, match="AutomaticLossScaler: state: loss_scale"):
        scaler.load_state_dict({**scaler.state_dict(), "loss_scale": scale})


def test_a_name_that_two_parameters_have_is_not_clipped_by_chance():
    groups = [{"params": [("t", weight())]}, {"params": [("t", weight())]}]
    with pytest.raises(ValueError):
        opt = torch.optim.SGD(groups, lr=0.1)
        lockstep.VariableClippingOptimizer(opt, {"t": [0]}, 0.5)


@pytest.mark.parametrize("make", [scaled, mixed])
@pytest.mark.parametrize("loss", [3.0, None, [torch.ones(())]])
def test_a_loss_that_is_no_tensor_is_not_scaled(make, loss):
    with pytest.raises(TypeError, match="expected a loss tensor"):
        make().scale_loss(loss)


@pytest.mark.parametrize("rate", [None, "x", -1, math.nan, math.inf, True])
def test_a_callable_that_returns_no_rate_is_refused_before_it_is_written(rate):
    with pytest.raises(ValueError, match="expected a finite rate >= 0"):
        lockstep.PolicyLR(sgd(), lambda step: rate)
    scheduler = lockstep.PolicyLR(sgd(), lambda step: rate if step else 0.1)
    scheduler.optimizer.step()
    with pytest.raises(ValueError, match="expected a finite rate >= 0"):
        scheduler.step()
    assert scheduler.optimizer.param_groups[0]["lr"] == 0.1
