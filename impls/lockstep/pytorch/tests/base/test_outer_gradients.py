"""``compute_gradients`` and ``apply_gradients`` of wrappers around a loss scale."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Parameter

from lockstep import pytorch as ls

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
