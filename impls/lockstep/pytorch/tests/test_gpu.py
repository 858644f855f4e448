"""What only a GPU can show: how often a step waits for it."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.nn import Parameter

from lockstep.pytorch import (
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    clip_gradients_by_global_norm,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


def host_syncs(function) -> int:
    """Call ``function`` and count the operations in it that wait for the GPU."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA operation" in str(w.message) for w in caught)


def parameters(zeros: int, count: int = 20) -> list[Parameter]:
    """Return parameters on the GPU with gradients, the first few of them all zero."""
    made = [Parameter(torch.ones(300, 20, device="cuda")) for _ in range(count)]
    for position, parameter in enumerate(made):
        parameter.grad = torch.full_like(parameter, float(position >= zeros))
    return made


@pytest.mark.parametrize(("zeros", "syncs"), [(0, 1), (7, 2), (20, 2)])
def test_a_step_waits_once_and_a_second_time_where_there_are_zeros(zeros, syncs):
    adam = torch.optim.Adam(parameters(zeros), fused=True)
    wrapper = MultitaskOptimizerWrapper(adam)
    wrapper.step()
    assert host_syncs(wrapper.step) == syncs
    assert len(wrapper.last_step.skipped) == zeros


def test_clipping_does_not_wait():
    pairs = [(parameter.grad, parameter) for parameter in parameters(3)]
    assert host_syncs(lambda: clip_gradients_by_global_norm(pairs, 1.0)) == 0
    _, norm = clip_gradients_by_global_norm(pairs, 1.0)
    assert norm.item() == pytest.approx((17 * 6000) ** 0.5, rel=1e-6)


@pytest.mark.parametrize("fused", [False, True], ids=["foreach", "fused"])
@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_a_scaled_step_waits_once(clip_norm, fused):
    trained = parameters(0)
    adam = torch.optim.Adam(trained, fused=fused)
    scale = DynamicLossScale(2.0**10, 1)
    wrapper = MixedPrecisionLossScaleOptimizer(adam, scale, clip_norm=clip_norm)
    for overflow in (False, False, True):
        wrapper.scale_loss(torch.ones((), device="cuda", requires_grad=True))
        if overflow:
            trained[3].grad[0, 0] = torch.inf
        assert host_syncs(wrapper.step) == 1
        assert wrapper.last_step.applied != overflow
    assert wrapper.last_step.nonfinite == ("param_groups[0]['params'][3]",)


def test_moving_the_scale_does_not_wait():
    scale = DynamicLossScale(2.0**10, 1)
    assert host_syncs(lambda: (scale.move(True), scale.move(False))) == 0


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_row_clipping_does_not_wait(sparse):
    table = Parameter(torch.full((1000, 4), 3.0, device="cuda"))
    sgd = torch.optim.SGD([table], lr=0.0)
    wrapper = VariableClippingOptimizer(sgd, {table: [1]}, 1.0)
    rows = torch.tensor([1, 5, 1], device="cuda") if sparse else None
    assert host_syncs(lambda: wrapper.clip({table: rows})) == 0
    assert int((table < 1).all(dim=1).sum()) == (2 if sparse else 1000)


@pytest.mark.parametrize("capturable", [False, True], ids=["waits", "never waits"])
@pytest.mark.parametrize("bad", [False, True], ids=["finite", "not finite"])
def test_masters_wait_once_and_a_second_time_for_names_or_never(capturable, bad):
    weights = [Parameter(torch.ones(300, 20, device="cuda").half()) for _ in range(20)]
    adam = torch.optim.Adam(weights, fused=True)
    wrapper = MixedPrecisionOptimizerWrapper(
        adam, "dynamic", clip_norm=1.0, capturable=capturable
    )
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    wrapper.step()
    weights[3].grad.fill_(torch.inf if bad else 1.0)
    if capturable:
        torch.cuda.set_sync_debug_mode("error")
        try:
            wrapper.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    else:
        assert host_syncs(wrapper.step) == 1 + bad
    assert wrapper.last_step.applied is not bad
