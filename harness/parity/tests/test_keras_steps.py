"""``optimize_loss`` over Keras' own optimizers, against the reference with their rules.

What capabilities.toml leaves out of the replay (Adam, sparse momentum, momentum at a
rate that changes) is held here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.parity.cases import GOLDEN, Case, gradient, read_cases
from harness.parity.distance import distance
from harness.parity.drivers import reference as reference_driver
from harness.parity.tests.test_keras_rules import (
    ALLOWED,
    RULES,
    cases_and_rules,
    driver,
    keras,
    keras3,
    power,
)
from lockstep import reference
from lockstep.reference.optimizers.rules import ftrl

KINDS = (
    "mixed_static",
    "larc_clip",
    "mixed_backoff",
    "iter_size",
    "sparse",
    "sparse_clip",
)
CASES = [
    next(c for c in read_cases(GOLDEN, ["optimize_loss"]) if c.kind == kind)
    for kind in KINDS
]
PASSED_ON = ("dtype", "clip_gradients", "larc_params", "loss_scaling", "iter_size")
Given = list[Any]


@pytest.mark.sample(5)
@cases_and_rules(CASES)
def test_steps_of_a_framework_s_optimizer_follow_its_own_rule(
    case: Case, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_reference, make_driver = RULES[rule]
    monkeypatch.setattr(ftrl, "root", power)
    ours = [reference.Variable(v.name, v.value) for v in case.variables]
    theirs = [
        keras.Variable(v.value, dtype=str(v.dtype), name=v.name) for v in case.variables
    ]
    our_driver = reference_driver.make_driver("numpy", reference)
    their_driver = driver.EagerDriver(keras3)
    inner = make_reference()
    expected = optimized(reference, inner, our_driver, ours, case)
    step = optimized(keras3, make_driver(), their_driver, theirs, case)
    for number, recorded in enumerate(case.inputs["gradients"]):
        given = [gradient(g, v) for g, v in zip(recorded, case.variables, strict=True)]
        flag = case.inputs.get("skip_update", [None] * (number + 1))[number]
        with np.errstate(all="ignore"):
            expected(given, skip_update=flag)
        step([driver.to_tensor(g) for g in given], skip_update=flag)
        assert step.last_step.applied == expected.last_step.applied
        assert int(step.global_step) == int(expected.global_step.value)
        for variable, own in zip(theirs, ours, strict=True):
            compare(step, expected, variable, own, inner)


def optimized(
    names: Any, optimizer: Any, its_driver: Any, variables: Given, case: Case
) -> Any:
    """Return a step that takes an optimizer as it is, with the settings of the case."""
    chosen = case.inputs["lr_policy"]
    policy = getattr(names.lr_policies, chosen["name"])
    options = {name: case.inputs[name] for name in PASSED_ON if name in case.inputs}
    return names.optimize_loss(
        lambda given: its_driver.linear_loss(variables, given)(),
        optimizer,
        None,
        lambda step: policy(step, **chosen["args"]),
        variables,
        **options,
    )


def compare(step: Any, expected: Any, variable: Any, own: Any, inner: Any) -> None:
    """Compare what is updated and its slots with those of the reference."""
    if expected.settings.mixed:
        variable = step.optimizer.master(variable)
        own = expected.optimizer.master(own)
    assert distance(variable.numpy(), own.value).ulp <= ALLOWED
    for name, wanted in inner.slots.get(id(own), {}).items():
        slot = step.optimizer.get_slot(variable, name).numpy()
        found = distance(slot, wanted).ulp
        assert found <= ALLOWED, f"{name} of {variable.path}: {found:g} ULP"
