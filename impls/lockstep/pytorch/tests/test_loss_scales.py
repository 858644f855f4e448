"""Loss scales by themselves: dynamic ones and LogMax."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from lockstep.errors import LockstepError
from lockstep.pytorch import (
    AutomaticLossScaler,
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
)
from lockstep.pytorch.loss_scales import step_on_device
from lockstep.pytorch.tests.devices import no_syncs, on_devices
from lockstep.scalers import DynamicState, step_dynamic

OPTIONS = {
    "plain": {},
    "every step": {"increment_period": 1},
    "odd factors": {"multiplier": 1.7, "growth_factor": 1.1, "backoff_factor": 0.3},
    "thirds": {"multiplier": 3.0},
    "bounded": {"floor": 0.001, "ceiling": 1e6, "increment_period": 1},
    "hysteresis": {"hysteresis": 3},
    "tolerance": {"tolerance": 0.3},
}


def on_device(state: DynamicState, device: str) -> DynamicState:
    """Return the state as 0-d tensors."""
    dtypes = torch.float32, torch.int64, torch.int64, torch.int64
    return DynamicState(
        *(
            torch.tensor(number, dtype=dtype, device=device)
            for number, dtype in zip(state, dtypes, strict=True)
        )
    )


@on_devices
@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_on_a_device_the_rule_gives_the_same_bits(options, share, device) -> None:
    policy = DynamicLossScale(64.0, **{"increment_period": 3, **options}).policy
    draw = random.Random(7)
    flags = [draw.random() >= share for _ in range(400)]
    state = DynamicState(policy.initial_loss_scale, 0)
    twin, states = on_device(state, device), []
    answers = torch.tensor(flags, device=device).unbind()
    for finite, flag in zip(flags, answers, strict=True):
        state = step_dynamic(policy, state, finite)
        with no_syncs(device):
            twin = step_on_device(policy, twin, flag)
        states.append((state, twin))
    for step, (expected, found) in enumerate(states):
        assert [tensor.item() for tensor in found] == list(expected), step
    assert twin.loss_scale.dtype == torch.float32
    assert {tensor.dtype for tensor in twin[1:]} == {torch.int64}


def test_what_patience_counts_is_saved_and_nothing_more() -> None:
    plain, patient = DynamicLossScale(64.0), DynamicLossScale(64.0, hysteresis=2)
    assert plain.numbers.keys() < patient.numbers.keys()
    patient.move(False)
    assert patient() == 64
    patient.move(False)
    assert patient() == 32
    again = DynamicLossScale.from_config(patient.get_config())
    assert again.policy == patient.policy


@pytest.mark.parametrize(
    ("key", "number"),
    [("loss_scale", 0.0), ("loss_scale", -1.0), ("loss_scale_good_steps", -1)],
)
def test_a_saved_number_that_no_scale_can_have_is_refused(key, number) -> None:
    inner = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    optimizer = MixedPrecisionLossScaleOptimizer(inner, "dynamic")
    saved = optimizer.state_dict()
    saved["param_groups"][0][key] = number
    with pytest.raises(LockstepError, match=f"saved {key}"):
        optimizer.load_state_dict(saved)


def test_the_step_that_makes_state_for_a_checkpoint_moves_no_scale() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    inner = torch.optim.Adam([weight], lr=0.0)
    optimizer = MixedPrecisionLossScaleOptimizer(inner, DynamicLossScale(8.0, 1))
    weight.grad = torch.zeros(2)
    with torch.no_grad():  # as torch.distributed.checkpoint takes it
        optimizer.step()
    assert "exp_avg" in optimizer.state[weight]
    assert optimizer.loss_scale.item() == 8.0


SMALLEST_NORMAL = 2.0**-126
SUBNORMAL = float(np.nextafter(np.float32(SMALLEST_NORMAL), 0))


@pytest.mark.parametrize("amax", [0.0, SUBNORMAL])
def test_a_step_without_a_gradient_changes_no_statistic(amax) -> None:
    scaler = AutomaticLossScaler("LogMax")
    scaler.update_op(False, 4.0)
    before = scaler.state
    scaler.update_op(False, amax)
    assert scaler.state == {**before, "iteration": 2}
