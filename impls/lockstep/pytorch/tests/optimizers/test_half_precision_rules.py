"""Rules on float16 and bfloat16 parameters: those of float32, rounded once a step."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from lockstep import pytorch

STEPS = 12
ARGUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "GradientDescent": ("GradientDescentOptimizer", {}),
    "Momentum": ("MomentumOptimizer", {"momentum": 0.999}),
    "Nesterov": ("MomentumOptimizer", {"momentum": 0.999, "use_nesterov": True}),
    "Adam": ("AdamOptimizer", {}),
    "AdamW": ("AdamWOptimizer", {"weight_decay": 0.01}),
    "Adagrad": ("AdagradOptimizer", {}),
    "RMSProp": ("RMSPropOptimizer", {"momentum": 0.5}),
    "centered RMSProp": ("RMSPropOptimizer", {"centered": True}),
    "Ftrl": ("FtrlOptimizer", {}),
    "NovoGrad": ("NovoGrad", {"weight_decay": 0.01}),
}
rules = pytest.mark.parametrize("rule", ARGUMENTS)
halves = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


def make(
    rule: str, params: Iterable[Tensor], names: Any = pytorch, rate: float = 1e-3
) -> Any:
    """Return the optimizer of a rule."""
    name, arguments = ARGUMENTS[rule]
    return getattr(names, name)(params, learning_rate=rate, **arguments)


def pair(dtype: torch.dtype) -> tuple[Parameter, Parameter]:
    """Return a parameter of ``dtype``, and one in float32 of the same values."""
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(6, 3, generator=generator).to(dtype)
    return Parameter(values), Parameter(values.float())


def dense(scale: float, dtype: torch.dtype) -> list[Tensor]:
    """Return the gradients of all steps; a third of their elements is zero."""
    generator = torch.Generator().manual_seed(5)
    drawn = torch.randn(STEPS, 6, 3, generator=generator).to(dtype) * scale
    return list(drawn * (torch.rand(STEPS, 6, 3, generator=generator) > 1 / 3))


def sparse(scale: float, dtype: torch.dtype) -> list[Tensor]:
    """Return sparse gradients that name row 1 twice, row 4 once, and no other."""
    return [
        torch.sparse_coo_tensor(
            [[1, 4, 1]], rows[:3], rows.shape, check_invariants=True
        )
        for rows in dense(scale, dtype)
    ]


def assert_rounded_once_a_step(got: Tensor, expected: Tensor) -> None:
    """Compare with float32, in ULPs of the half precision's largest value.

    A step rounds a weight once, by half an ULP at most, and decays only shrink an
    error; one ULP a step, since a power of two in between doubles the spacing.
    """
    precision = torch.finfo(got.dtype)
    spacing = expected.abs().max().clamp(min=precision.tiny) * precision.eps
    assert (got.float() - expected).abs().max() <= STEPS * spacing


@rules
@halves
@pytest.mark.parametrize("scale", [0.0, 1e-4, 1.0, 300.0])
@pytest.mark.parametrize("gradients", [dense, sparse])
def test_a_rule_in_half_precision_is_that_of_float32_rounded_once_a_step(
    rule: str,
    dtype: torch.dtype,
    scale: float,
    gradients: Callable[[float, torch.dtype], Sequence[Tensor]],
) -> None:
    half, wide = pair(dtype)
    ours, same = make(rule, [half]), make(rule, [wide])
    for gradient in gradients(scale, dtype):
        half.grad, wide.grad = gradient, gradient.float()
        ours.step()
        same.step()
    assert_rounded_once_a_step(half.detach(), wide.detach())
    for name, slot in ours.state[half].items():
        assert slot.dtype == torch.float32, name


@halves
@pytest.mark.parametrize("rule", ["Adam", "AdamW"])
def test_rows_that_no_batch_named_stay_where_they_were(
    rule: str, dtype: torch.dtype
) -> None:
    half, _ = pair(dtype)
    before = half.detach().clone()
    ours = make(rule, [half], rate=0.1)
    for gradient in sparse(1e-4, dtype):
        half.grad = gradient
        ours.step()
    unnamed = [0, 2, 3, 5]
    assert torch.equal(half[unnamed], before[unnamed])
    assert not torch.equal(half[1], before[1])


@pytest.mark.parametrize("name", pytorch.OPTIMIZER_CLS_NAMES)
@halves
def test_optimize_loss_trains_half_precision_as_float32(
    name: str, dtype: torch.dtype
) -> None:
    extra = {"Momentum": {"momentum": 0.9}, "AdamW": {"weight_decay": 0.1}}
    half, wide = pair(dtype)
    for gradients in (half, wide):
        step = pytorch.optimize_loss(
            lambda p=gradients: (p.float() * 0.5).sum(),
            name,
            extra.get(name, {}),
            lambda _: 0.01,
            var_list=[gradients],
        )
        for _ in range(STEPS):
            step()
    assert_rounded_once_a_step(half.detach(), wide.detach())


@rules
@halves
def test_training_goes_on_to_the_bit_from_a_saved_state(
    rule: str, dtype: torch.dtype
) -> None:
    half, _ = pair(dtype)
    first, *rest = dense(1.0, dtype)
    ours = make(rule, [half])
    half.grad = first
    ours.step()
    buffer = io.BytesIO()
    torch.save(ours.state_dict(), buffer)
    buffer.seek(0)
    other = copy.deepcopy(half)
    resumed = make(rule, [other])
    resumed.load_state_dict(torch.load(buffer, weights_only=True))
    for gradient in rest:
        for parameter, optimizer in (half, ours), (other, resumed):
            parameter.grad = gradient
            optimizer.step()
    assert torch.equal(half, other)


@rules
@halves
def test_a_state_that_was_saved_in_half_precision_is_widened(
    rule: str, dtype: torch.dtype
) -> None:
    half, _ = pair(dtype)
    ours = make(rule, [half])
    half.grad = dense(1.0, dtype)[0]
    ours.step()
    old = ours.state_dict()
    for entry in old["state"].values():
        entry.update({k: v.to(dtype) for k, v in entry.items() if v.dim()})
    ours.load_state_dict(old)
    for name, slot in ours.state[half].items():
        assert slot.dtype == torch.float32, name
        assert torch.equal(slot, old["state"][0][name].float())
    ours.step()
    assert half.isfinite().all()
