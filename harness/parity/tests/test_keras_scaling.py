"""Loss scaling around Keras' own optimizers, against the reference with Keras' rules.

What capabilities.toml leaves out of the replay (Adam, sparse momentum) is held here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.parity.cases import GOLDEN, Case, gradient, read_cases
from harness.parity.distance import distance
from harness.parity.tests.test_keras_rules import (
    ALLOWED,
    RULES,
    cases_and_rules,
    driver,
    keras,
    keras3,
    power,
    state_of,
)
from lockstep import reference
from lockstep.reference.optimizers.rules import ftrl

KINDS = ("overflow_skip", "overflow_skip_sparse", "dense", "sparse", "absent")
CASES = [
    case
    for case in read_cases(GOLDEN, ["loss_scale_dynamic"])
    if case.kind in KINDS and "variables" in case.inputs
]


@pytest.mark.sample(7)
@pytest.mark.filterwarnings(
    # Keras says so of every absent gradient, around a wrapper or not.
    "ignore:Gradients do not exist:UserWarning"
)
@cases_and_rules(CASES)
def test_a_scaled_optimizer_of_keras_follows_its_own_rule(
    case: Case, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_reference, make_driver = RULES[rule]
    monkeypatch.setattr(ftrl, "root", power)
    ours = [reference.Variable(v.name, v.value) for v in case.variables]
    theirs = [keras.Variable(v.value, name=v.name) for v in case.variables]
    inner = make_reference()
    expected = scaled(reference, inner, case)
    wrapper = scaled(keras3, make_driver(), case)
    wrapper.build(theirs)
    for step in case.inputs["gradients"]:
        gradients = [gradient(g, v) for g, v in zip(step, case.variables, strict=True)]
        if all(g is None for g in gradients):
            continue
        before = [state_of(wrapper, variable) for variable in theirs]
        with np.errstate(all="ignore"):
            expected.apply_gradients(list(zip(gradients, ours, strict=True)))
        tensors = [driver.to_tensor(g) for g in gradients]
        wrapper.apply_gradients(list(zip(tensors, theirs, strict=True)))
        assert wrapper.last_step == expected.last_step
        assert wrapper.last_step.nonfinite == expected.last_step.nonfinite
        assert float(wrapper.loss_scale) == expected.loss_scale
        for k, variable in enumerate(theirs):
            after = state_of(wrapper, variable)
            if not expected.last_step.applied:
                assert all(after[n].tobytes() == before[k][n].tobytes() for n in after)
            wanted = {"": ours[k].value, **inner.slots.get(id(ours[k]), {})}
            for name in wanted:
                found = distance(after[name], wanted[name]).ulp
                assert found <= ALLOWED, f"{name} of {variable.path}: {found:g} ULP"


def scaled(names: Any, optimizer: Any, case: Case) -> Any:
    """Wrap an optimizer in the scale of the case."""
    given = {k: v for k, v in case.inputs["loss_scale"].items() if k != "kind"}
    scale = names.DynamicLossScale(**given)
    return names.MixedPrecisionLossScaleOptimizer(optimizer, scale, at_floor="ignore")
