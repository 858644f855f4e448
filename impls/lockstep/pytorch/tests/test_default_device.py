"""``torch.set_default_device``, with which many models are made, changes no step.

The default device is "meta" here, whose tensors have no values. So each number that a
step would create there by mistake fails.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import Parameter

from lockstep.pytorch import (
    AutomaticLossScaler,
    clip_by_global_norm,
    get_regularization_loss,
    lr_policies,
    optimize_loss,
)
from lockstep.pytorch.tests.subjects import (
    OWN,
    TwoHeads,
    assert_same_bits,
    batches,
    snapshot,
)

DTYPES = [torch.float32, torch.bfloat16]
ELSEWHERE = "meta"


def stepped(make, dtype, device):
    """Return weights and state after three steps with this default device."""
    model, inputs = TwoHeads().to(dtype), [x.to(dtype) for x in batches(3)]
    optimizer = make(model.parameters())
    with torch.device(device):
        for batch in inputs:
            optimizer.zero_grad()
            model(batch, 1.0, 0.5).backward()
            optimizer.step()
        variables = optimizer.variables()
    assert all(value.is_cpu for value in variables)
    return snapshot(model, optimizer)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("make", OWN.values(), ids=OWN)
def test_steps_have_the_same_bits(make, dtype) -> None:
    expected = stepped(make, dtype, "cpu")
    assert_same_bits(stepped(make, dtype, ELSEWHERE), expected)


def test_a_training_step_counts_on_the_cpu() -> None:
    weight = Parameter(torch.tensor([3.0, 4.0]))
    with torch.device(ELSEWHERE):
        step = optimize_loss(
            lambda: weight.square().sum() / 2,
            "SGD",
            {},
            0.5,
            [weight],
            clip_gradients=2.5,
        )
        step()
    assert weight.tolist() == [2.25, 3.0]
    assert step.global_step.is_cpu
    assert step.global_step.item() == 1


def test_numbers_of_functions_are_on_the_cpu() -> None:
    gradient, penalty = torch.tensor([3.0, 4.0]), torch.tensor(1.5)
    with torch.device(ELSEWHERE):
        (clipped,), norm = clip_by_global_norm([gradient], 2.5)
        _, norm_of_none = clip_by_global_norm([], 2.5)
        scaler = AutomaticLossScaler("Backoff", {"scale_max": 8.0})
        flags = scaler.check_grads([])
        rate = lr_policies.transformer_policy(0, 1.0, 64, 10, dtype=torch.float16)
        total = get_regularization_loss(losses={"penalty": penalty})
        numbers = [norm, norm_of_none, scaler.loss_scale, *flags, total]
    assert clipped.tolist() == [1.5, 2.0]
    assert isinstance(rate, float)
    assert [number.item() for number in numbers] == [5, 0, 8, False, -torch.inf, 1.5]
