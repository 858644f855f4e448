"""The TF1 optimizers as torch optimizers; their numbers are checked by parity."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from torch.nn import Parameter

from lockstep import pytorch
from lockstep.pytorch.tests.subjects import (
    TF1,
    TwoHeads,
    assert_same_bits,
    snapshot,
    train,
)

rules = pytest.mark.parametrize("make", TF1.values(), ids=TF1)
BAD_ARGUMENTS = [
    (lambda p: pytorch.GradientDescentOptimizer(p, -1.0), "learning_rate", ">= 0"),
    (lambda p: pytorch.GradientDescentOptimizer(p, torch.ones(2)), "learning", ">= 0"),
    (lambda p: pytorch.MomentumOptimizer(p, 0.1, 1.5), "momentum", "[0, 1]"),
    (
        lambda p: pytorch.MomentumOptimizer(p, 0.1, 0.5, use_nesterov=1),
        "use_nesterov",
        "a bool",
    ),
    (lambda p: pytorch.AdamOptimizer(p, beta1=1.0), "beta1", "[0, 1)"),
    (lambda p: pytorch.AdamOptimizer(p, epsilon=float("nan")), "epsilon", "finite"),
    (lambda p: pytorch.AdamWOptimizer(p, "0.1"), "weight_decay", "finite"),
    (lambda p: pytorch.AdagradOptimizer(p, 0.1, 0.0), "initial_acc", "> 0"),
    (lambda p: pytorch.RMSPropOptimizer(p, 0.1, decay=-0.1), "decay", "[0, 1]"),
    (lambda p: pytorch.FtrlOptimizer(p, 0.1, 0.5), "learning_rate_power", "<= 0"),
    (lambda p: pytorch.AdamOptimizer(p, name=""), "name", "a name"),
    (lambda p: pytorch.AdamOptimizer([{"params": p, "beta2": 2.0}]), "beta2", "[0, 1)"),
    (lambda p: pytorch.AdamOptimizer([{"params": p, "lr": -1.0}]), "learning", ">= 0"),
]


def weight(*values: float, dtype: torch.dtype = torch.float32) -> Parameter:
    """Return a parameter of these values with a gradient of ones."""
    parameter = Parameter(torch.tensor(values, dtype=dtype))
    parameter.grad = torch.ones_like(parameter)
    return parameter


@pytest.mark.parametrize(("make", "argument", "claim"), BAD_ARGUMENTS)
def test_an_argument_out_of_range_is_a_value_error_that_names_it(make, argument, claim):
    with pytest.raises(ValueError) as caught:
        make([weight(1.0)])
    assert argument in str(caught.value)
    assert claim in str(caught.value)


AT_USE_LOCKING = {
    "use_nesterov": lambda p: pytorch.MomentumOptimizer(p, 0.1, 0.9, True),
    "centered": lambda p: pytorch.RMSPropOptimizer(p, 0.1, 0.9, 0.0, 0.1, True),
    "l2_shrinkage_regularization_strength": lambda p: pytorch.FtrlOptimizer(
        p, 0.1, -0.5, 0.1, 0, 0, True
    ),
}


@pytest.mark.parametrize(("other", "make"), AT_USE_LOCKING.items(), ids=AT_USE_LOCKING)
def test_use_locking_has_the_place_that_it_has_in_tf(other, make):
    group = make([weight(1.0)]).param_groups[0]
    assert not group[other] and "use_locking" not in group


@rules
def test_every_group_has_its_own_hyper_parameters(make):
    together, alone = [weight(1.0), weight(2.0)], weight(2.0)
    optimizer = make([together[0]])
    optimizer.add_param_group({"params": [together[1]], "lr": 0.5})
    other = make([alone])
    other.param_groups[0]["lr"] = 0.5
    for _ in range(3):
        optimizer.step()
        other.step()
    assert together[1].item() == alone.item() != 2.0


def test_a_group_with_another_beta_has_its_own_power():
    first, second, alone = weight(1.0), weight(1.0), weight(1.0)
    groups = [{"params": [first]}, {"params": [second], "beta1": 0.5}]
    optimizer = pytorch.AdamOptimizer(groups, 0.1)
    other = pytorch.AdamOptimizer([alone], 0.1, beta1=0.5)
    for _ in range(3):
        optimizer.step()
        other.step()
    assert second.item() == alone.item() != first.item()
    assert optimizer.param_groups[1]["beta1_power"] == 0.5**4


def test_a_group_may_call_its_rate_learning_rate():
    parameter = weight(1.0)
    group = {"params": parameter, "learning_rate": 0.25}
    pytorch.GradientDescentOptimizer([group], 0.1).step()
    assert parameter.item() == 0.75


def test_a_bad_group_changes_nothing():
    optimizer = pytorch.AdamOptimizer([weight(1.0)])
    with pytest.raises(ValueError, match="beta1"):
        optimizer.add_param_group({"params": [weight(2.0)], "beta1": -1.0})
    assert len(optimizer.param_groups) == len(optimizer.state) == 1


@rules
def test_the_rate_may_be_a_tensor(make):
    plain, tensor = weight(1.0, 2.0), weight(1.0, 2.0)
    optimizer, other = make([plain]), make([tensor])
    other.param_groups[0]["lr"] = torch.tensor(0.1, dtype=torch.float64)
    for _ in range(3):
        optimizer.step()
        other.step()
    assert torch.equal(plain, tensor)


@rules
def test_slots_are_there_from_the_start_except_for_frozen_parameters(make):
    warm, frozen = weight(1.0), Parameter(torch.ones(1), requires_grad=False)
    optimizer = make([warm, frozen])
    names = [slot.name for slot in optimizer.spec.active_slots(optimizer.defaults)]
    assert optimizer.get_slot_names() == names
    assert all(optimizer.get_slot(frozen, name) is None for name in names)
    frozen.requires_grad_(True)
    frozen.grad = torch.ones(1)
    optimizer.step()
    assert all(optimizer.get_slot(frozen, name) is not None for name in names)


@rules
def test_float64_parameters_have_slots_in_float64(make):
    parameter = weight(1.0, 2.0, dtype=torch.float64)
    optimizer = make([parameter])
    optimizer.step()
    slots = optimizer.state[parameter].values()
    assert {parameter.dtype, *(slot.dtype for slot in slots)} == {torch.float64}
    assert parameter.isfinite().all()
    assert parameter[0] != 1.0


@rules
def test_absent_gradients_leave_everything_as_it_is(make):
    model = TwoHeads()
    optimizer = make(model.parameters())
    before, group = snapshot(model, optimizer), dict(optimizer.param_groups[0])
    optimizer.step()
    assert_same_bits(snapshot(model, optimizer), before)
    assert optimizer.param_groups[0] == group


@rules
def test_rows_named_twice_count_as_their_sum(make):
    summed, twice = weight(1.0, 2.0, 3.0), weight(1.0, 2.0, 3.0)
    optimizer, other = make([summed]), make([twice])
    for parameter, indices, values in (
        (summed, [2, 0], [0.75, 1.0]),
        (twice, [2, 0, 2], [0.5, 1.0, 0.25]),
    ):
        parameter.grad = torch.sparse_coo_tensor(
            [indices], values, (3,), check_invariants=True
        )
    for _ in range(3):
        optimizer.step()
        other.step()
    torch.testing.assert_close(summed, twice, rtol=1e-6, atol=0)
    assert summed[2] != 3.0


@rules
def test_rows_that_are_not_named_stay_except_in_adam(make):
    parameter = weight(1.0, 2.0)
    optimizer = make([parameter])
    optimizer.step()
    before = parameter[1].item()
    slots = {name: slot[1].item() for name, slot in optimizer.state[parameter].items()}
    parameter.grad = torch.sparse_coo_tensor([[0]], [1.0], (2,), check_invariants=True)
    optimizer.step()
    after = {name: slot[1].item() for name, slot in optimizer.state[parameter].items()}
    lazy = not isinstance(optimizer, pytorch.AdamOptimizer | pytorch.AdamWOptimizer)
    assert (parameter[1].item() == before) == lazy
    assert [after[name] == slots[name] for name in slots] == [lazy] * len(slots)


def test_a_sparse_gradient_that_names_elements_is_refused_before_any_change():
    first, second = weight(1.0), Parameter(torch.ones(2, 2))
    second.grad = torch.eye(2).to_sparse()
    optimizer = pytorch.MomentumOptimizer([first, second], 0.1, 0.9)
    with pytest.raises(ValueError, match=r"one sparse dimension .* got 2; .*to_dense"):
        optimizer.step()
    assert first.item() == 1.0


def test_complex_parameters_are_refused_before_any_change():
    first, second = weight(1.0), weight(1j, dtype=torch.complex64)
    with pytest.raises(TypeError, match="real floating-point dtype, got"):
        pytorch.MomentumOptimizer([first, second], 0.1, 0.9).step()
    assert first.item() == 1.0


def test_ftrl_at_rate_zero_leaves_everything_as_it_is():
    parameter = weight(1.0)
    optimizer = pytorch.FtrlOptimizer([parameter], 0.0)
    optimizer.step()
    assert parameter.item() == 1.0
    assert optimizer.get_slot(parameter, "linear").item() == 0.0


def test_ftrl_shows_a_nan():
    rows = torch.sparse_coo_tensor([[0]], [torch.nan], (2,), check_invariants=True)
    for gradient in torch.tensor([torch.nan, 1.0]), rows:
        parameter = weight(1.0, 1.0)
        parameter.grad = gradient
        pytorch.FtrlOptimizer([parameter], learning_rate=0.25).step()
        assert parameter[0].isnan()
        assert parameter[1].isfinite()


def test_the_powers_of_beta_are_float32_numbers_that_advance_once_a_step():
    optimizer = pytorch.AdamOptimizer([weight(1.0), weight(2.0)])
    power = torch.tensor(0.9)
    for _ in range(5):
        assert optimizer.param_groups[0]["beta1_power"] == power.item()
        assert type(optimizer.param_groups[0]["beta1_power"]) is float
        optimizer.step()
        power *= torch.tensor(0.9)


@rules
def test_step_returns_the_loss_of_its_closure(make):
    model = TwoHeads()
    optimizer = make(model.parameters())

    def closure():
        loss = model(torch.ones(2, 3), 1.0, 1.0)
        loss.backward()
        return loss

    with torch.no_grad():
        before = model(torch.ones(2, 3), 1.0, 1.0)
        assert optimizer.step(closure) == before
        assert model(torch.ones(2, 3), 1.0, 1.0) != before


@rules
def test_training_lowers_the_loss(make):
    model = TwoHeads()
    optimizer = make(model.parameters())
    before = model(torch.ones(2, 3), 1.0, 1.0).item()
    train(model, optimizer, "+" * 10)
    assert model(torch.ones(2, 3), 1.0, 1.0).item() < before


WRAPPERS = {
    "bare": lambda opt: opt,
    "masters": lambda opt: pytorch.MixedPrecisionOptimizerWrapper(opt, 8.0),
    "multitask": pytorch.MultitaskOptimizerWrapper,
}
NO_GROUPS = {
    "None": (None, "got NoneType;"),
    "an empty dict": ({}, "got NoneType as 'params'"),
    "a number": ({"params": 3}, "got int as 'params'"),
    "a list of numbers": ({"params": [3]}, "got int among 'params'"),
    "a set": ({"params": {1}}, "got set as 'params'"),
}


@pytest.mark.parametrize("name", ["NovoGrad", "TF1 Adam"])
def test_numbers_of_numpy_are_saved_as_those_of_python(name) -> None:
    make = {"NovoGrad": pytorch.NovoGrad, "TF1 Adam": pytorch.AdamOptimizer}[name]
    optimizer = make([weight(1.0)], np.float64(0.1), beta1=np.float32(0.5))
    optimizer.add_param_group({"params": [weight(2.0)], "beta2": np.float64(0.25)})
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    groups = torch.load(file, weights_only=True)["param_groups"]
    assert [(g["lr"], g["beta1"]) for g in groups] == [(0.1, 0.5)] * 2
    assert groups[1]["beta2"] == 0.25
