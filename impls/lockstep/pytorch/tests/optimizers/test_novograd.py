"""NovoGrad as a torch optimizer; its numbers are checked by parity."""

from __future__ import annotations

import io
import math
import pickle
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.checkpoint import state_dict as checkpoint
from torch.nn import Parameter

from lockstep import pytorch
from lockstep.pytorch import NovoGrad
from lockstep.pytorch.tests.devices import no_syncs, on_devices

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def weight(*values: float, dtype: torch.dtype = torch.float32) -> Parameter:
    return Parameter(torch.tensor(values, dtype=dtype))


def step(optimizer: Any, parameter: Tensor, *gradient: float) -> None:
    parameter.grad = torch.tensor(gradient, dtype=parameter.dtype)
    optimizer.step()


def moments(optimizer: Any, parameter: Tensor) -> tuple[Tensor, Tensor]:
    """Return copies of a and v."""
    slots = (optimizer.get_slot(parameter, n) for n in ("momentum", "second_moment"))
    return tuple(slot.clone() for slot in slots)


def state_bytes(optimizer: Any) -> int:
    values = (v for slots in optimizer.state.values() for v in slots.values())
    return sum(value.nbytes for value in values if isinstance(value, Tensor))


@pytest.mark.parametrize(
    ("argument", "value", "claim"),
    [
        ("learning_rate", -1.0, ">= 0"),
        ("beta1", 1.0, "[0, 1)"),
        ("beta2", -0.1, "[0, 1)"),
        ("epsilon", float("nan"), "finite"),
        ("weight_decay", "0.1", "finite"),
        ("grad_averaging", 1, "a bool"),
    ],
)
def test_an_argument_out_of_range_is_a_value_error_that_names_it(
    argument, value, claim
):
    with pytest.raises(ValueError) as caught:
        NovoGrad([weight(1.0)], **{"learning_rate": 1.0, argument: value})
    assert argument in str(caught.value) and claim in str(caught.value)


def test_each_group_has_its_own_hyper_parameters():
    decaying, plain = weight(2.0), weight(2.0)
    groups = [{"params": [decaying], "weight_decay": 0.5}, {"params": [plain], "lr": 0}]
    optimizer = NovoGrad(groups, learning_rate=0.25)
    for parameter in (decaying, plain):
        parameter.grad = torch.ones(1)
    optimizer.step()
    # g' = 1 + 0.5 * 2 where weights decay.
    assert (decaying.item(), plain.item()) == (1.5, 2.0)


@dtypes
def test_slots_are_in_float32_at_least_and_the_second_moment_is_one_number(dtype):
    w = weight(1.0, 1.0, dtype=dtype)
    optimizer = NovoGrad([w], 1.0)
    step(optimizer, w, 300.0, 400.0)
    momentum, second = moments(optimizer, w)
    assert momentum.dtype == torch.promote_types(dtype, torch.float32)
    assert second.dtype == torch.promote_types(dtype, torch.float32)
    # bfloat16 rounds 300 itself.
    assert second.item() == pytest.approx(250000, rel=4e-3) and second.dim() == 0


@dtypes
@pytest.mark.parametrize("way", ["load", "deepcopy", "pickle", "distributed"])
def test_a_run_goes_on_to_the_bit(dtype, way):
    w, twin = weight(1.0, 2.0, dtype=dtype), weight(1.0, 2.0, dtype=dtype)
    optimizer, other = NovoGrad([w], 1.0), NovoGrad([twin], 1.0)
    step(optimizer, w, 300.0, 400.0)
    if way in ("deepcopy", "pickle"):
        copied = deepcopy(optimizer)
        if way == "pickle":
            copied = pickle.loads(pickle.dumps(optimizer))
        (twin,) = copied.param_groups[0]["params"]
        other = copied
    elif way == "load":
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        twin.data.copy_(w)
    else:
        modules = []
        for parameter in (w, twin):
            modules.append(torch.nn.Module())
            modules[-1].register_parameter("w", parameter)
        saved = checkpoint.get_optimizer_state_dict(modules[0], optimizer)
        checkpoint.set_optimizer_state_dict(modules[1], other, deepcopy(saved))
        twin.data.copy_(w)
    for pair in ((optimizer, w), (other, twin)):
        step(*pair, 100.0, -1.0)
    assert torch.equal(w, twin)
    for got, right in zip(moments(other, twin), moments(optimizer, w), strict=True):
        assert got.dtype == right.dtype and torch.equal(got, right)


def test_a_square_that_overflows_is_forgotten_by_the_next_step():
    w = weight(1.0)
    optimizer = NovoGrad([w], 0.5, beta2=0.5)
    found = []
    for gradient in (2.0, 1e30, 3.0, 1.0):
        step(optimizer, w, gradient)
        found.append(moments(optimizer, w)[1].item())
    assert found == [4.0, math.inf, 9.0, 5.0]


@pytest.mark.parametrize("size", [3, 1 << 14, 3_000_001])
def test_the_second_moment_is_right_at_any_size(size):
    weight = Parameter(torch.zeros(size))
    weight.grad = torch.randn(size, generator=torch.Generator().manual_seed(0))
    optimizer = NovoGrad([weight], 0.1)
    optimizer.step()
    right = weight.grad.double().square().sum().item()
    v = optimizer.get_slot(weight, "second_moment").item()
    assert v == pytest.approx(right, rel=5e-7)


def test_a_loaded_second_moment_is_a_copy():
    w, twin = weight(1.0), weight(1.0)
    optimizer, other = NovoGrad([w], 1.0), NovoGrad([twin], 1.0)
    step(optimizer, w, 2.0)
    other.load_state_dict(optimizer.state_dict())
    step(other, twin, 4.0)
    assert moments(optimizer, w)[1].item() == 4.0


def test_state_is_half_of_adam_s_but_for_a_number_a_tensor():
    shapes = [(64, 32), (32,), (7, 5, 3)]
    states = []
    for make in (partial(NovoGrad, lr=1.0), partial(torch.optim.Adam, foreach=False)):
        parameters = [Parameter(torch.ones(shape)) for shape in shapes]
        optimizer = make(parameters)
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        states.append(state_bytes(optimizer))
    elements = sum(torch.Size(shape).numel() for shape in shapes)
    # Four bytes a moment; torch's Adam has a step count of four bytes besides.
    assert states == [4 * (elements + 3), 4 * (2 * elements + 3)]


@on_devices
def test_a_step_waits_for_no_gpu(device):
    w = Parameter(torch.ones(4, 3, device=device))
    optimizer = NovoGrad([w], 1.0, weight_decay=0.1, grad_averaging=True)
    w.grad = torch.ones_like(w)
    optimizer.step()
    with no_syncs(device):
        optimizer.step()
    assert w.isfinite().all()


# -- rates ---------------------------------------------------------------------------


def test_the_rate_is_that_of_torch_s_schedulers():
    w = weight(8.0)
    optimizer = NovoGrad([w], learning_rate=1.0, beta1=0.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    seen = []
    for _ in range(3):
        step(optimizer, w, 2.0)
        scheduler.step()
        seen.append(w.item())
    assert seen == [7.0, 6.5, 6.25]


def test_the_rate_is_that_of_a_policy():
    w = weight(8.0)
    optimizer = NovoGrad([w], learning_rate=1.0, beta1=0.0)
    arguments = {"boundaries": [0], "decay_rates": [0.5]}
    scheduler = pytorch.PolicyLR(optimizer, "piecewise_constant", **arguments)
    for _ in range(2):
        step(optimizer, w, 2.0)
        scheduler.step()
    assert w.item() == 6.5


def test_a_tensor_is_a_rate():
    w, rate = weight(8.0), torch.tensor(1.0)
    optimizer = NovoGrad([w], learning_rate=rate, beta1=0.0)
    step(optimizer, w, 2.0)
    rate.fill_(0.25)
    step(optimizer, w, 2.0)
    assert w.item() == 6.75


# -- inside of the wrappers ----------------------------------------------------------


@pytest.mark.parametrize("gradient", [None, 0.0], ids=["absent", "zero"])
def test_a_task_that_is_absent_leaves_both_moments_alone(gradient):
    w, other = weight(1.0, 2.0), weight(1.0)
    inner = NovoGrad([w, other], 1.0, weight_decay=0.1)
    optimizer = pytorch.MultitaskOptimizerWrapper(inner)
    other.grad = torch.ones(1)
    step(optimizer, w, 3.0, 4.0)
    before = [w.detach().clone(), *moments(optimizer, w)]
    w.grad = None if gradient is None else torch.full_like(w, gradient)
    optimizer.step()
    after = [w, *moments(optimizer, w)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_step_that_overflows_leaves_both_moments_alone():
    w = weight(1.0, 2.0)
    optimizer = pytorch.MixedPrecisionLossScaleOptimizer(NovoGrad([w], 1.0), "dynamic")
    optimizer.minimize(lambda: (w * torch.tensor([3.0, 4.0])).sum())
    before = [w.detach().clone(), *moments(optimizer, w)]
    assert before[2].item() == 25.0
    optimizer.minimize(lambda: (w * float("inf")).sum())
    after = [w, *moments(optimizer, w)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_rows_are_clipped_after_the_step():
    w = Parameter(torch.tensor([[3.0, 4.0], [0.5, 0.0]]))
    inner = NovoGrad([w], learning_rate=0.0)
    optimizer = pytorch.VariableClippingOptimizer(inner, {w: [1]}, 1.0)
    w.grad = torch.ones_like(w)
    optimizer.step()
    assert w.detach().norm(dim=1).tolist() == pytest.approx([1.0, 0.5])
    assert moments(optimizer, w)[1].item() == 4.0


def test_float16_weights_are_trained_through_masters():
    half, full = weight(1.0, 1.0, dtype=torch.float16), weight(1.0, 1.0)
    given = {"learning_rate": 2.0**-13, "weight_decay": 0.5}
    wrapper = pytorch.MixedPrecisionOptimizerWrapper(NovoGrad([half], **given), 8.0)
    plain = NovoGrad([full], **given)
    for _ in range(3):
        wrapper.minimize(lambda: (half.float() * torch.tensor([1.0, 2.0])).sum())
        step(plain, full, 1.0, 2.0)
    master = wrapper.master(half)
    assert torch.equal(master, full)
    for got, right in zip(moments(wrapper, half), moments(plain, full), strict=True):
        assert torch.equal(got, right) and got.dtype == torch.float32


# -- strict --------------------------------------------------------------------------


def test_hyper_parameters_are_cast_once_for_a_group_and_dtype(monkeypatch):
    wide, half = [weight(1.0) for _ in range(3)], weight(1.0, dtype=torch.float16)
    optimizer = NovoGrad([{"params": [*wide, half]}, {"params": [weight(1.0)]}], 1.0)
    cast, asked = NovoGrad.policy, []

    def counted(self, group, dtype):
        asked.append(dtype)
        return cast(self, group, dtype)

    monkeypatch.setattr(NovoGrad, "policy", counted)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert asked == [torch.float32, torch.float16, torch.float32]
