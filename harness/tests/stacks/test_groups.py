"""Groups, frozen, added and tied parameters on PyTorch: each as written by hand."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from harness.parity.drivers.pytorch import make_driver  # noqa: E402
from harness.tests.stacks.stacks import Model, wrapped  # noqa: E402
from lockstep import pytorch, reference  # noqa: E402
from lockstep.reference import Variable  # noqa: E402
from lockstep.reference.variable_clipping import clip_rows  # noqa: E402
from lockstep.tests.wrappers import MAX_NORM, has_masters, skips  # noqa: E402

STACKS = [
    "multitask",
    "rows",
    "dynamic",
    "masters-dynamic",
    "masters-backoff",
    "dynamic multitask rows",
    "multitask dynamic rows",
    "masters-dynamic multitask rows",
]
TABLE = np.array([[1.0, 0, 0], [0, -2, 0]])
HEAD, LATE = np.array([0.5, -1.0]), np.array([[3.0, 4.0]])
RATES = {"lr": 0.25}, {"lr": 0.5, "momentum": 0.25}
# Of the table, the head and what comes late; None: frozen in this step.
STEPS = [
    (1.0, 1.0, 0.0),
    (0.0, -1.0, 0.0),
    (2.0, None, 0.0),
    (np.inf, None, 1.0),
    (-1.0, 1.0, 1.0),
    (1.0, 0.0, -2.0),
    (0.5, None, 0.0),
    (1.0, 2.0, 1.0),
]
LATE_FROM = 3
everyone = pytest.mark.parametrize("stack", STACKS)


class ByHand:
    """Two optimizers of the reference, one for each group, and the stages."""

    def __init__(self, stack: str) -> None:
        self.layers, self.skips = stack.split(), skips(f"{stack} Momentum")
        self.half = has_masters(stack)
        self.groups = [
            reference.MomentumOptimizer(0.25, 0.5),
            reference.MomentumOptimizer(0.5, 0.25),
        ]
        dtype = np.float32
        self.variables = [
            Variable(name, value.astype(np.float16), dtype)
            for name, value in zip("thl", (TABLE, HEAD, LATE), strict=True)
        ]

    def advance(self, gradients: list[Any]) -> None:
        gradients = [None if g is None else g.astype(np.float32) for g in gradients]
        if "multitask" in self.layers:
            gradients = [None if g is None or not g.any() else g for g in gradients]
        present = [g for g in gradients if g is not None]
        if self.skips and not all(np.isfinite(g).all() for g in present):
            return
        for group, part in zip(self.groups, (slice(0, 2), slice(2, 3)), strict=True):
            pairs = list(zip(gradients[part], self.variables[part], strict=True))
            if any(g is not None for g, _ in pairs):
                group.apply_gradients(pairs)
        if "rows" in self.layers and gradients[0] is not None:
            table = self.variables[0]
            table.value, _ = clip_rows(table.value, (1,), MAX_NORM)

    def set_rate(self, group: int, rate: float) -> None:
        self.groups[group].arguments = {
            **self.groups[group].arguments,
            "learning_rate": rate,
        }


def parameters(stack: str) -> list[Any]:
    dtype = torch.float16 if has_masters(stack) else torch.float32
    values = [torch.tensor(value, dtype=dtype) for value in (TABLE, HEAD, LATE)]
    return [torch.nn.Parameter(value) for value in values]


def started(stack: str, weights: list[Any]) -> Any:
    named = [("table", weights[0]), ("head", weights[1])]
    base = pytorch.MomentumOptimizer(named, 0.25, 0.5)
    return wrapped(stack.split(), make_driver("", pytorch), Model(weights), base)


@np.errstate(invalid="ignore")
def gradients_of(step: tuple, stack: str) -> list[Any]:
    """Return what a step's numbers stand for; no overflow where nothing skips it."""
    shapes = (TABLE != 0, np.ones(2), np.array([[1.0, 0.0]]))
    calm = not skips(f"{stack} Momentum")
    return [
        # Infinity times 0 is no number: as good for a step to be skipped.
        None if k is None else s * (1.0 if calm and np.isinf(k) else k) / 8
        for k, s in zip(step, shapes, strict=True)
    ]


def take(optimizer: Any, weights: list[Any], gradients: list[Any]) -> None:
    optimizer.zero_grad()
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.requires_grad_(gradient is not None)
        if gradient is not None:
            weight.grad = torch.tensor(gradient, dtype=weight.dtype)
    optimizer.step()


def assert_same(weights: list[Any], hand: ByHand, when: str) -> None:
    for weight, variable in zip(weights, hand.variables, strict=True):
        expected = variable.value.astype(weight.detach().numpy().dtype)
        np.testing.assert_array_equal(weight.detach().numpy(), expected, when)


@everyone
def test_groups_frozen_and_late_parameters_train_as_by_hand(stack: str) -> None:
    weights, hand = parameters(stack), ByHand(stack)
    optimizer = started(stack, weights)
    for number, step in enumerate(STEPS):
        if number == LATE_FROM:
            late = {"params": [("late", weights[2])], **RATES[1]}
            optimizer.add_param_group(late)
        gradients = gradients_of(step, stack)
        if number < LATE_FROM:
            gradients[2] = None
        if number == 6:
            for k, group in enumerate(optimizer.param_groups):
                group["lr"] = 0.125
                hand.set_rate(k, 0.125)
        take(optimizer, weights, gradients)
        hand.advance(gradients)
        assert_same(weights, hand, f"{stack}: step {number}")
    assert [group["lr"] for group in optimizer.param_groups] == [0.125, 0.125]


@everyone
def test_groups_resume_with_the_rates_of_their_schedule(stack: str) -> None:
    def made() -> tuple:
        weights = parameters(stack)
        named = [("table", weights[0]), ("head", weights[1])]
        groups = [{"params": named}, {"params": [("late", weights[2])], **RATES[1]}]
        base = pytorch.MomentumOptimizer(groups, 0.25, 0.5)
        driver, model = make_driver("", pytorch), Model(weights)
        optimizer = wrapped(stack.split(), driver, model, base)
        halving = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        return weights, optimizer, halving

    hand, (weights, optimizer, halving) = ByHand(stack), made()
    for number, step in enumerate(STEPS):
        if number == 5:
            state = copy.deepcopy((optimizer.state_dict(), halving.state_dict()))
            saved = [weight.detach().clone() for weight in weights]
            weights, optimizer, halving = made()
            with torch.no_grad():
                for weight, value in zip(weights, saved, strict=True):
                    weight.copy_(value)
            optimizer.load_state_dict(state[0])
            halving.load_state_dict(state[1])
        for k, rates in enumerate(RATES):
            hand.set_rate(k, rates["lr"] * 0.5 ** (number // 2))
        gradients = gradients_of(step, stack)
        take(optimizer, weights, gradients)
        halving.step()
        hand.advance(gradients)
        assert_same(weights, hand, f"{stack}: step {number}")
