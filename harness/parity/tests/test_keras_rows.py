"""Row clipping around Keras' rules, where those are another trajectory than recorded.

The recorded gradients go through the reference with Keras' rules and through Keras.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from harness.parity import drivers
from harness.parity.cases import GOLDEN, Case, read_cases
from harness.parity.distance import distance
from harness.parity.drivers.reference import NumpyDriver
from harness.parity.families.clipping import variable_clipping
from harness.parity.tables import excuse
from harness.parity.tests import keras_rules as rules
from lockstep import registry

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
pytest.importorskip("lockstep.keras3")

CASES = [
    case
    for case in read_cases(GOLDEN, ["variable_clipping"])
    if excuse(case, "keras3", "eager")
]
ALLOWED = 8.0
"""Keras' kernels take pow and rsqrt approximately, and its rules order some operations
otherwise; the differences add up over the steps of a case."""

ABSENT = {"RMSProp": {"slots/momentum/emb"}}
"""Without momentum, as in these cases, Keras has no such slot."""


class KerasRules(NumpyDriver):
    """The reference with the rules of Keras' optimizers."""

    def optimizer(
        self, name: str, args: Mapping[str, Any], variables: Sequence[Any]
    ) -> Any:
        """Make the optimizer of Keras that stands for TensorFlow 1's."""
        name = {"Momentum": "SGD", "RMSProp": "RMSprop"}.get(name, name)
        return getattr(rules, f"Keras{name}")(**args)


def test_the_cases_that_are_another_trajectory_are_here() -> None:
    assert {case.optimizer for case in CASES} >= {"Adam", "Momentum", "RMSProp", "Ftrl"}


@pytest.mark.sample(7)
@pytest.mark.filterwarnings("ignore:Gradients do not exist:UserWarning")
@pytest.mark.filterwarnings("ignore:VariableClippingOptimizer:UserWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_clipping_follows_the_rule_of_keras(case: Case) -> None:
    names = registry.load("reference")
    expected = variable_clipping.replay(case, KerasRules("numpy", names))
    driver = drivers.load("keras3", "eager")
    states = variable_clipping.replay(case, driver)
    compared = 0
    for step, (got, wanted) in enumerate(zip(states, expected, strict=True)):
        for quantity in wanted.keys() - ABSENT.get(case.optimizer, set()):
            if not quantity.startswith("non_slots/"):
                found = distance(got[quantity], wanted[quantity]).ulp
                assert found <= ALLOWED, f"{quantity} after step {step}: {found:g} ULP"
                compared += 1
    assert compared
