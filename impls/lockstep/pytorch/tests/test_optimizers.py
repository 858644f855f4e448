"""Laws of the optimizers of TF1 and of NovoGrad; parity checks their numbers."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributed.checkpoint import state_dict as checkpoint
from torch.nn import Module, Parameter
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ExponentialLR

from lockstep import pytorch as ls
from lockstep.pytorch.tests.devices import no_syncs, on_devices
from lockstep.pytorch.tests.subjects import (
    OWN,
    TwoHeads,
    assert_same_bits,
    snapshot,
)

Make = Callable[[Iterable], Optimizer]
RULES: dict[str, Make] = {
    **OWN,
    "TF1 RMSProp plain": lambda params: ls.RMSPropOptimizer(params, 0.1),
    "Ftrl with shrinkage": lambda params: ls.FtrlOptimizer(
        params, 0.1, -0.4, l2_shrinkage_regularization_strength=0.1
    ),
    "NovoGrad with averages": lambda params: ls.NovoGrad(
        params, 0.1, weight_decay=0.1, grad_averaging=True
    ),
}
EXTRA: dict[str, dict[str, Any]] = {
    "AdagradOptimizer": {},
    "AdamOptimizer": {},
    "AdamWOptimizer": {"weight_decay": 0.1},
    "FtrlOptimizer": {},
    "GradientDescentOptimizer": {},
    "MomentumOptimizer": {"momentum": 0.5},
    "NovoGrad": {},
    "RMSPropOptimizer": {},
}
STEPS = 12
HALVES = [torch.float16, torch.bfloat16]
DTYPES = [*HALVES, torch.float32, torch.float64]
rules = pytest.mark.parametrize("make", RULES.values(), ids=RULES)
names = pytest.mark.parametrize("name", EXTRA)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)
halves = pytest.mark.parametrize("dtype", HALVES, ids=str)


def weight(*values: float, dtype: torch.dtype = torch.float32) -> Parameter:
    """Return a parameter of these values with a gradient of ones."""
    parameter = Parameter(torch.tensor(values, dtype=dtype))
    parameter.grad = torch.ones_like(parameter)
    return parameter


def sparse(values: Tensor, rows: list[int]) -> Tensor:
    """Return a gradient of some rows, which may repeat."""
    return torch.sparse_coo_tensor(
        [rows], values[: len(rows)], values.shape, check_invariants=True
    )


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


# Arguments and groups


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda p: ls.GradientDescentOptimizer(p, -1.0), "learning_rate"),
        (lambda p: ls.GradientDescentOptimizer(p, torch.ones(2)), "learning_rate"),
        (lambda p: ls.MomentumOptimizer(p, 0.1, 1.5), "momentum"),
        (lambda p: ls.MomentumOptimizer(p, 0.1, 0.5, use_nesterov=1), "use_nesterov"),
        (lambda p: ls.AdamOptimizer(p, beta1=1.0), "beta1"),
        (lambda p: ls.AdamOptimizer(p, epsilon=float("nan")), "epsilon"),
        (lambda p: ls.AdamWOptimizer(p, "0.1"), "weight_decay"),
        (lambda p: ls.AdagradOptimizer(p, 0.1, 0.0), "initial_accumulator_value"),
        (lambda p: ls.RMSPropOptimizer(p, 0.1, decay=-0.1), "decay"),
        (lambda p: ls.FtrlOptimizer(p, 0.1, 0.5), "learning_rate_power"),
        (lambda p: ls.NovoGrad(p, 0.1, grad_averaging=1), "grad_averaging"),
        (lambda p: ls.AdamOptimizer(p, name=""), "name"),
        (lambda p: ls.AdamOptimizer([{"params": p, "beta2": 2.0}]), "beta2"),
        (lambda p: ls.AdamOptimizer([{"params": p, "lr": -1.0}]), "learning_rate"),
    ],
)
def test_an_argument_out_of_range_is_refused_by_name(make: Make, argument: str) -> None:
    with pytest.raises(ValueError, match=argument):
        make([weight(1.0)])


@names
def test_lr_is_the_rate(name: str) -> None:
    make, params = getattr(ls, name), [weight(1.0)]
    made = make(params, lr=0.25, **EXTRA[name])
    assert made.param_groups[0]["lr"] == 0.25
    with pytest.raises(TypeError):
        make(params, lr=0.25, learning_rate=0.5, **EXTRA[name])


@names
@pytest.mark.parametrize("arguments", [(0.1,), (0.1, 0.9), (1, 0.9, 0.5)], ids=str)
def test_a_number_in_place_of_the_parameters_is_refused(
    name: str, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(TypeError, match="params"):
        getattr(ls, name)(*arguments)


@rules
def test_every_group_has_its_own_hyper_parameters(make: Make) -> None:
    together, alone = [weight(1.0), weight(2.0)], weight(2.0)
    optimizer, other = make([together[0]]), make([alone])
    optimizer.add_param_group({"params": [together[1]], "lr": 0.5})
    other.param_groups[0]["lr"] = 0.5
    for _ in range(3):
        optimizer.step()
        other.step()
    assert together[1].item() == alone.item() != 2.0


def test_a_group_with_another_beta_has_its_own_power() -> None:
    first, second, alone = weight(1.0), weight(1.0), weight(1.0)
    groups = [{"params": [first]}, {"params": [second], "beta1": 0.5}]
    optimizer = ls.AdamOptimizer(groups, 0.1)
    other = ls.AdamOptimizer([alone], 0.1, beta1=0.5)
    for _ in range(3):
        optimizer.step()
        other.step()
    assert second.item() == alone.item() != first.item()
    assert optimizer.param_groups[1]["beta1_power"] == 0.5**4


def test_a_group_may_call_its_rate_learning_rate() -> None:
    parameter = weight(1.0)
    group = {"params": parameter, "learning_rate": 0.25}
    ls.GradientDescentOptimizer([group], 0.1).step()
    assert parameter.item() == 0.75


@pytest.mark.parametrize(
    "group",
    [{"params": [Parameter(torch.ones(1))], "beta1": -1.0}, None, {"params": [3]}],
    ids=str,
)
def test_a_bad_group_changes_nothing(group: Any) -> None:
    optimizer = ls.AdamOptimizer([weight(1.0)])
    with pytest.raises((TypeError, ValueError)):
        optimizer.add_param_group(group)
    assert len(optimizer.param_groups) == len(optimizer.state) == 1


@rules
def test_the_rate_may_be_a_tensor(make: Make) -> None:
    plain, tensor = weight(1.0, 2.0), weight(1.0, 2.0)
    optimizer, other = make([plain]), make([tensor])
    rate = other.param_groups[0]["lr"] = torch.tensor(0.1, dtype=torch.float64)
    for change in (1.0, 0.5, 0.25):
        optimizer.param_groups[0]["lr"] = 0.1 * change
        rate.fill_(0.1 * change)
        optimizer.step()
        other.step()
    assert torch.equal(plain, tensor)


def test_the_rate_is_that_of_schedulers() -> None:
    parameter = weight(8.0)
    optimizer = ls.NovoGrad([parameter], learning_rate=1.0, beta1=0.0)
    scheduler = ExponentialLR(optimizer, 0.5)
    values = []
    for _ in range(3):
        optimizer.step()
        scheduler.step()
        values.append(parameter.item())
    assert values == [7.0, 6.5, 6.25]


# Steps


@rules
def test_slots_are_there_from_the_start_except_for_frozen_parameters(
    make: Make,
) -> None:
    warm, frozen = weight(1.0), Parameter(torch.ones(1), requires_grad=False)
    optimizer = make([warm, frozen])
    slots = optimizer.get_slot_names()
    assert all(optimizer.get_slot(warm, name) is not None for name in slots)
    assert all(optimizer.get_slot(frozen, name) is None for name in slots)
    frozen.requires_grad_(True)
    frozen.grad = torch.ones(1)
    optimizer.step()
    assert optimizer.get_slot_names() == slots
    assert all(optimizer.get_slot(frozen, name) is not None for name in slots)


@rules
@dtypes
def test_slots_have_at_least_float32(make: Make, dtype: torch.dtype) -> None:
    parameter = weight(1.0, 2.0, dtype=dtype)
    optimizer = make([parameter])
    optimizer.step()
    expected = torch.promote_types(dtype, torch.float32)
    slots = optimizer.state[parameter].values()
    assert {slot.dtype for slot in slots} <= {expected}
    assert parameter.dtype == dtype
    assert parameter.isfinite().all() and parameter[0] != 1.0


@rules
def test_step_returns_the_loss_of_its_closure(make: Make) -> None:
    model = TwoHeads()
    optimizer = make(model.parameters())

    def closure() -> Tensor:
        loss = model(torch.ones(2, 3), 1.0, 1.0)
        loss.backward()
        return loss

    with torch.no_grad():
        before = model(torch.ones(2, 3), 1.0, 1.0)
        assert optimizer.step(closure) == before
        assert model(torch.ones(2, 3), 1.0, 1.0) != before


@rules
def test_many_tensors_move_as_if_each_were_alone(make: Make) -> None:
    """Their sizes need one call of the rule, several calls, and pieces of a tensor."""
    shapes = [(3,), (), (4, 5), (0,), (300, 100), (300, 101), (4, 5)]
    parts = [(shape, dtype) for shape in shapes for dtype in DTYPES]
    parts.append(((700_001,), torch.float32))
    ends = []
    for alone in (True, False):
        params = [
            Parameter(drawn(*s, dtype=d, seed=k)) for k, (s, d) in enumerate(parts)
        ]
        made = [make([p]) for p in params] if alone else [make(params)]
        for seed in range(2):
            for k, parameter in enumerate(params):
                parameter.grad = drawn(
                    *parameter.shape, dtype=parameter.dtype, seed=seed
                )
                if parameter.shape == (4, 5) and k % 2 == seed:
                    parameter.grad = sparse(parameter.grad, [1, 3, 1])
            for optimizer in made:
                optimizer.step()
        ends.append([*params, *(v for o in made for v in o.variables() if v.dim())])
    for one, other in zip(*ends, strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)


@pytest.mark.parametrize(
    "make", [m for n, m in RULES.items() if "Novo" not in n], ids=lambda m: ""
)
def test_a_large_tensor_moves_as_its_parts_do(make: Make) -> None:
    size = 700_001
    whole = Parameter(drawn(size))
    parts = [Parameter(p.clone()) for p in whole.detach().split(50_000)]
    one, other = make([whole]), make(parts)
    for seed in range(2):
        whole.grad = drawn(size, seed=seed + 1)
        for parameter, gradient in zip(parts, whole.grad.split(50_000), strict=True):
            parameter.grad = gradient
        one.step()
        other.step()
    assert torch.equal(whole, torch.cat(parts))


@rules
def test_rows_that_are_not_named_stay_except_in_adam_and_novograd(make: Make) -> None:
    parameter = weight(1.0, 2.0)
    optimizer = make([parameter])
    optimizer.step()
    whole = {n: s for n, s in optimizer.state[parameter].items() if s.dim()}
    before = parameter[1].item(), {name: s[1].item() for name, s in whole.items()}
    parameter.grad = sparse(torch.ones(2), [0])
    optimizer.step()
    after = parameter[1].item(), {name: s[1].item() for name, s in whole.items()}
    dense = ls.AdamOptimizer | ls.AdamWOptimizer | ls.NovoGrad
    assert (after == before) != isinstance(optimizer, dense)


@pytest.mark.parametrize(
    "gradient", [torch.eye(2).to_sparse(), torch.ones(2, 2, dtype=torch.complex64)]
)
def test_what_a_rule_cannot_update_is_refused_before_any_change(
    gradient: Tensor,
) -> None:
    first, second = weight(1.0), Parameter(torch.ones(2, 2, dtype=gradient.dtype))
    second.grad = gradient
    with pytest.raises((TypeError, ValueError)):
        ls.MomentumOptimizer([first, second], 0.1, 0.9).step()
    assert first.item() == 1.0


# Half precision: the rule of float32, rounded once a step


def assert_rounded_once_a_step(got: Tensor, expected: Tensor) -> None:
    """Compare with float32, in ULPs of the half precision's largest value.

    A step rounds a weight once, by half an ULP at most, and decays only shrink an
    error; one ULP a step, since a power of two in between doubles the spacing.
    """
    precision = torch.finfo(got.dtype)
    spacing = expected.abs().max().clamp(min=precision.tiny) * precision.eps
    assert (got.float() - expected).abs().max() <= STEPS * spacing


@names
@halves
@pytest.mark.parametrize("scale", [0.0, 1e-4, 1.0, 300.0])
@pytest.mark.parametrize("rows", [None, [1, 4, 1]], ids=["dense", "sparse"])
def test_a_rule_in_half_precision_is_that_of_float32(
    name: str, dtype: torch.dtype, scale: float, rows: list[int] | None
) -> None:
    half = Parameter(drawn(6, 3, dtype=dtype))
    wide = Parameter(half.detach().float())
    ours, same = (getattr(ls, name)([p], lr=1e-3, **EXTRA[name]) for p in (half, wide))
    for seed in range(STEPS):
        gradient = drawn(6, 3, seed=seed) * (drawn(6, 3, seed=seed + 99) > -0.4)
        gradient = (gradient * scale).to(dtype)
        half.grad = gradient if rows is None else sparse(gradient, rows)
        wide.grad = half.grad.float()
        ours.step()
        same.step()
    assert_rounded_once_a_step(half.detach(), wide.detach())


@halves
@pytest.mark.parametrize("name", ["AdamOptimizer", "AdamWOptimizer"])
def test_rows_that_no_batch_named_stay_in_half_precision(
    name: str, dtype: torch.dtype
) -> None:
    half = Parameter(drawn(6, 3, dtype=dtype))
    before = half.detach().clone()
    ours = getattr(ls, name)([half], lr=0.1, **EXTRA[name])
    for seed in range(STEPS):
        half.grad = sparse(drawn(6, 3, dtype=dtype, seed=seed), [1, 4, 1])
        ours.step()
    assert (half != before).any(1).tolist() == [False, True, False, False, True, False]


# States


def resumed(way: str, model: Module, optimizer: Optimizer, make: Make) -> Any:
    """Return a copy of a model, and its optimizer with the saved state."""
    if way in ("deepcopy", "pickle"):
        both = model, optimizer
        return (
            copy.deepcopy(both)
            if way == "deepcopy"
            else pickle.loads(pickle.dumps(both))
        )
    other = copy.deepcopy(model)
    again = make(other.parameters())
    if way == "load":
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        again.load_state_dict(torch.load(file, weights_only=True))
    else:
        saved = checkpoint.get_optimizer_state_dict(model, optimizer)
        checkpoint.set_optimizer_state_dict(other, again, copy.deepcopy(saved))
    return other, again


@rules
@dtypes
@pytest.mark.parametrize("way", ["load", "deepcopy", "pickle", "distributed"])
def test_a_run_goes_on_to_the_bit(make: Make, dtype: torch.dtype, way: str) -> None:
    model = torch.nn.Linear(3, 2).to(dtype)
    optimizer = make(model.parameters())

    def step(model: Module, optimizer: Optimizer, seed: int) -> None:
        for parameter in model.parameters():
            parameter.grad = drawn(*parameter.shape, dtype=dtype, seed=seed) * 100
        optimizer.step()

    step(model, optimizer, 1)
    other, again = resumed(way, model, optimizer, make)
    for seed in (2, 3):
        step(model, optimizer, seed)
        step(other, again, seed)
    assert_same_bits(snapshot(other, again), snapshot(model, optimizer))
    for one, same in zip(optimizer.param_groups, again.param_groups, strict=True):
        assert {**one, "params": 0} == {**same, "params": 0}


@rules
@halves
def test_a_state_that_was_saved_in_half_precision_is_widened(
    make: Make, dtype: torch.dtype
) -> None:
    half = weight(1.0, 2.0, dtype=dtype)
    ours = make([half])
    ours.step()
    old = copy.deepcopy(ours.state_dict())
    for entry in old["state"].values():
        entry.update({key: value.to(dtype) for key, value in entry.items()})
    ours.load_state_dict(old)
    for name, slot in ours.state[half].items():
        assert slot.dtype == torch.float32
        assert torch.equal(slot, old["state"][0][name].float())


DAMAGES: dict[str, Callable[[dict], Any]] = {
    "fewer groups": lambda saved: {**saved, "param_groups": []},
    "a rate": lambda saved: in_group(saved, lr=-1.0),
    "a power": lambda saved: in_group(saved, beta1_power=2.0),
    "SGD": lambda saved: torch.optim.SGD([weight(1.0)], 0.1).state_dict(),
    "torch's Adam": lambda saved: torch.optim.Adam([weight(1.0)]).state_dict(),
    "Momentum": lambda saved: ls.MomentumOptimizer(
        [weight(1.0)], 0.1, 0.9
    ).state_dict(),
}


def in_group(saved: dict, **changes: Any) -> dict:
    (group,) = saved["param_groups"]
    return {**saved, "param_groups": [{**group, **changes}]}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(
    damage: Callable[[dict], Any],
) -> None:
    parameter = weight(1.0)
    optimizer = ls.AdamOptimizer([parameter])
    optimizer.step()
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ValueError):
        optimizer.load_state_dict(damage(copy.deepcopy(before)))
    assert str(optimizer.state_dict()) == str(before)
    optimizer.step()


def test_a_state_with_keys_of_others_is_loaded() -> None:
    optimizer = ls.MomentumOptimizer([weight(1.0)], 0.1, 0.9)
    saved = in_group(copy.deepcopy(optimizer.state_dict()), initial_lr=0.1, layers=[1])
    optimizer.load_state_dict(saved)
    optimizer.step()
    assert optimizer.param_groups[0]["layers"] == [1]


@pytest.mark.parametrize("make", [ls.NovoGrad, ls.AdamOptimizer])
def test_numbers_of_numpy_are_saved_as_those_of_python(make: Callable) -> None:
    optimizer = make([weight(1.0)], np.float64(0.1), beta1=np.float32(0.5))
    optimizer.add_param_group({"params": [weight(2.0)], "beta2": np.float64(0.25)})
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    groups = torch.load(file, weights_only=True)["param_groups"]
    assert [(g["lr"], g["beta1"]) for g in groups] == [(0.1, 0.5)] * 2
    assert groups[1]["beta2"] == 0.25


# NovoGrad


def second_moment(optimizer: Optimizer, parameter: Tensor) -> Tensor:
    return optimizer.get_slot(parameter, "second_moment")


def test_a_square_that_overflows_is_forgotten_by_the_next_step() -> None:
    parameter = weight(1.0)
    optimizer = ls.NovoGrad([parameter], 0.5, beta2=0.5)
    squares = []
    for gradient in (2.0, 1e30, 3.0, 1.0):
        parameter.grad = torch.tensor([gradient])
        optimizer.step()
        squares.append(second_moment(optimizer, parameter).item())
    assert squares == [4.0, float("inf"), 9.0, 5.0]


@pytest.mark.parametrize("size", [3, 1 << 14, 3_000_001])
def test_the_second_moment_is_right_at_any_size(size: int) -> None:
    parameter = Parameter(torch.zeros(size))
    parameter.grad = drawn(size)
    optimizer = ls.NovoGrad([parameter], 0.1)
    optimizer.step()
    right = parameter.grad.double().square().sum().item()
    v = second_moment(optimizer, parameter)
    assert (v.dim(), v.item()) == (0, pytest.approx(right, rel=5e-7))


@on_devices
@pytest.mark.parametrize("make", [RULES["NovoGrad with averages"], RULES["Momentum"]])
def test_a_step_waits_for_no_gpu(device: str, make: Make) -> None:
    parameter = Parameter(torch.ones(4, 3, device=device))
    optimizer = make([parameter])
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    with no_syncs(device):
        optimizer.step()
    assert parameter.isfinite().all()
