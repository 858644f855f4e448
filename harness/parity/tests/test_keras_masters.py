"""Masters around Keras' own optimizers, against the reference with Keras' rules.

What capabilities.toml leaves out of the replay (Adam, sparse momentum) is held here.
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

KINDS = ("static_scale", "sparse", "absent_float32", "auto_backoff_overflow")
CASES = [
    case
    for case in read_cases(GOLDEN, ["mixed_precision_wrapper"])
    if case.kind in KINDS and "variables" in case.inputs
][::3]
"""Every third, for the sake of time: Keras builds an optimizer for each."""


@pytest.mark.sample(5)
@pytest.mark.filterwarnings(
    # Keras says so of every absent gradient, around a wrapper or not.
    "ignore:Gradients do not exist:UserWarning"
)
@cases_and_rules(CASES)
def test_masters_of_a_framework_s_optimizer_follow_its_own_rule(
    case: Case, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_reference, make_driver = RULES[rule]
    monkeypatch.setattr(ftrl, "root", power)
    ours = [reference.Variable(v.name, v.value) for v in case.variables]
    theirs = [
        keras.Variable(v.value, dtype=str(v.dtype), name=v.name) for v in case.variables
    ]
    inner = make_reference()
    expected = wrapped(reference, inner, case)
    wrapper = wrapped(keras3, make_driver(), case)
    wrapper.build(theirs)
    our_driver = reference_driver.make_driver("numpy", reference)
    their_driver = driver.EagerDriver(keras3)
    for step in case.inputs["gradients"]:
        given = [gradient(g, v) for g, v in zip(step, case.variables, strict=True)]
        with np.errstate(all="ignore"):
            loss = our_driver.linear_loss(ours, given)
            expected.minimize(loss, var_list=ours)
        loss = their_driver.linear_loss(theirs, [driver.to_tensor(g) for g in given])
        wrapper.minimize(loss, var_list=theirs)
        assert wrapper.last_step.applied == expected.last_step.applied
        assert float(wrapper.loss_scale) == expected.loss_scale
        for variable, own in zip(theirs, ours, strict=True):
            compare(wrapper, variable, expected.master(own), inner)


def compare(wrapper: Any, variable: Any, master: Any, inner: Any) -> None:
    """Compare a master and its slots with those of the reference."""
    assert distance(wrapper.master(variable).numpy(), master.value).ulp <= ALLOWED
    for name, wanted in inner.slots.get(id(master), {}).items():
        slot = wrapper.get_slot(variable, name).numpy()
        found = distance(slot, wanted).ulp
        assert found <= ALLOWED, f"{name} of {variable.path}: {found:g} ULP"


def wrapped(names: Any, optimizer: Any, case: Case) -> Any:
    """Wrap an optimizer in masters with the scale of the case."""
    scale = case.inputs["loss_scale"]
    if isinstance(scale, dict):
        scale = names.AutomaticLossScaler(scale["algorithm"], scale["params"])
    return names.MixedPrecisionOptimizerWrapper(optimizer, scale, at_floor="ignore")
