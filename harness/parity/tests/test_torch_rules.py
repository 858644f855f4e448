"""Wrappers around torch's own optimizers, against the reference with torch's rules.

Golden data -> the reference with TF1's rules proves the logic of the wrapper; this
proves the same wrapper around the optimizers of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.parity.cases import GOLDEN, Case, gradient, read_cases
from harness.parity.distance import distance
from harness.parity.drivers.framework_rules import (
    TorchAdam,
    TorchOptimizer,
    parameters,
)
from harness.parity.tests import torch_sgd
from lockstep import reference
from lockstep.optimizers import OptimizerSpec, Slot

torch = pytest.importorskip("torch")
pytorch = pytest.importorskip("lockstep.pytorch")

KINDS = ("zero_patterns", "negative_zero", "nonfinite")
CASES = [
    case
    for case in read_cases(GOLDEN, ["multitask"])
    if case.kind in KINDS and "wrapper" in case.inputs
]

EXACT, SQRT = 0.0, 4.0
"""SGD only adds and multiplies. torch's float32 sqrt is not correctly rounded on a CPU,
so that Adam's steps are up to 2 ULP off, of which some add up."""


class TorchSGD(TorchOptimizer):
    """``torch.optim.SGD(lr, momentum, nesterov=...)``."""

    spec = OptimizerSpec(
        "TorchSGD",
        parameters(lr=0.001, momentum=0.0, nesterov=False),
        (Slot("momentum"),),
    )
    rule = staticmethod(torch_sgd.update_dense)


RULES: dict[
    str, tuple[Callable[..., Any], Callable[..., Any], dict[str, str], float]
] = {
    "sgd": (lambda: TorchSGD(0.1), lambda p: torch.optim.SGD(p, 0.1), {}, EXACT),
    "momentum": (
        lambda: TorchSGD(0.1, 0.9),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        {"momentum": "momentum_buffer"},
        EXACT,
    ),
    "nesterov": (
        lambda: TorchSGD(0.1, 0.9, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
        {"momentum": "momentum_buffer"},
        EXACT,
    ),
    "adam": (
        lambda: TorchAdam(0.01),
        lambda p: torch.optim.Adam(p, 0.01, foreach=False),
        {"m": "exp_avg", "v": "exp_avg_sq", "step": "step"},
        SQRT,
    ),
}


@pytest.mark.sample(36)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_wrapped_optimizer_of_the_framework_follows_its_own_rule(
    case: Case, rule: str
) -> None:
    make_reference, make_driver, slots, allowed = RULES[rule]
    ours = [reference.Variable(v.name, v.value) for v in case.variables]
    theirs = [torch.nn.Parameter(torch.tensor(v.value)) for v in case.variables]
    expected = reference.MultitaskOptimizerWrapper(make_reference())
    wrapper = pytorch.MultitaskOptimizerWrapper(make_driver(theirs))
    for number, step in enumerate(case.inputs["gradients"], start=1):
        gradients = [gradient(g, v) for g, v in zip(step, case.variables, strict=True)]
        if all(g is None for g in gradients):
            continue
        expected.apply_gradients(list(zip(gradients, ours, strict=True)))
        tensors = [None if g is None else torch.tensor(g) for g in gradients]
        wrapper.apply_gradients(list(zip(tensors, theirs, strict=True)))
        for variable, parameter in zip(ours, theirs, strict=True):
            where = f"{variable.name} after step {number}"
            state = wrapper.state.get(parameter, {})
            close(parameter.detach().numpy(), variable.value, allowed, where)
            for name, key in slots.items():
                right = expected.get_slot(variable, name)
                if key not in state:
                    assert right is None, f"{name} of {where}"
                else:
                    got = np.asarray(state[key], right.dtype)
                    close(got, right, allowed, f"{name} of {where}")


def close(got: Any, expected: Any, allowed: float, where: str) -> None:
    found = distance(np.asarray(got), np.asarray(expected)).ulp
    assert found <= allowed, f"{where}: {found:g} ULP, allowed {allowed:g}"
