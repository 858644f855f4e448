"""Workers around Keras' own optimizers, against the reference with Keras' rules.

The powers of beta are Keras' count of steps. The center has its own, as the reference
with the rule ``own_powers``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from harness.parity import drivers
from harness.parity.cases import GOLDEN, Case, read_cases
from harness.parity.distance import distance
from harness.parity.drivers.framework_rules.own_powers import OwnPowers
from harness.parity.drivers.reference import NumpyDriver
from harness.parity.families.workers import agn
from harness.parity.tables import excuse
from harness.parity.tests import keras_rules as rules
from lockstep import reference, registry

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
keras = pytest.importorskip("keras")
keras3 = pytest.importorskip("lockstep.keras3")

RULES: dict[str, tuple[Callable[[], Any], Callable[[], Any], float]] = {
    "sgd": (
        lambda: reference.GradientDescentOptimizer(0.125),
        lambda: keras.optimizers.SGD(0.125),
        0,
    ),
    "momentum": (
        lambda: rules.KerasSGD(0.125, 0.875),
        lambda: keras.optimizers.SGD(0.125, momentum=0.875),
        1,
    ),
    "adam": (
        lambda: rules.KerasAdam(0.01, epsilon=1e-7),
        lambda: keras.optimizers.Adam(0.01),
        8,
    ),
}
"""Rules with the largest distance in ULPs: Keras' kernels take rsqrt approximately and
order some operations otherwise, and later steps carry on from there."""
ORDER = (0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1)
PERIOD = 3


@pytest.mark.parametrize("rule", RULES)
def test_workers_follow_the_wrapped_optimizers_own_rule(rule: str) -> None:
    make_reference, make_driver, allowed = RULES[rule]
    start = np.array([0.25, -0.5, 2.0], np.float32)
    ours, theirs = [], []
    center: Any = OwnPowers()
    other: Any = None
    for _ in range(2):
        getter = reference.AGNCustomGetter("/cpu:0", center)
        twin = keras3.AGNCustomGetter("/cpu:0", other)
        center, other = getter.center, twin.center
        (variable,) = getter([reference.Variable("w", start)])
        base = make_reference()
        ours.append((variable, reference.AGNOptimizer(base, 2, getter, PERIOD)))
        (weight,) = twin([keras.Variable(start, name="w")])
        theirs.append((weight, keras3.AGNOptimizer(make_driver(), 2, twin, PERIOD)))
    for worker in (w for _, w in (*ours, *theirs)):
        worker.get_init_op(0)
    generator = np.random.default_rng(6)
    for number in ORDER:
        gradient = generator.normal(size=3).astype(np.float32)
        variable, worker = ours[number]
        worker.apply_gradients([(gradient, variable)])
        weight, wrapper = theirs[number]
        wrapper.apply_gradients([(gradient, weight)])
        for got, expected in (
            (weight, variable.value),
            (other.shared["w"], center.variables["w"].value),
        ):
            assert distance(got.numpy(), expected).ulp <= allowed


class KerasRules(NumpyDriver):
    """The reference with the rules of Keras' optimizers."""

    def optimizer(
        self, name: str, args: Mapping[str, Any], variables: Sequence[Any]
    ) -> Any:
        """Make the optimizer of Keras that stands for TensorFlow 1's."""
        return getattr(rules, f"Keras{STANDS_FOR[name]}")(**args)


STANDS_FOR = {"Momentum": "SGD", "RMSProp": "RMSprop", "Ftrl": "Ftrl"}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Momentum": {"learning_rate": 0.125, "momentum": 0.875},
    "RMSProp": {"learning_rate": 0.0625},
    "Ftrl": {"learning_rate": 0.125},
}


@pytest.mark.parametrize("name", STANDS_FOR)
def test_sparse_workers_follow_a_rule_that_moves_every_row(name: str) -> None:
    (recorded,) = (c for c in read_cases(GOLDEN, ["agn"]) if c.kind == "sparse")
    optimizer = {"name": name, "args": ARGUMENTS[name]}
    inputs = {**recorded.inputs, "optimizer": optimizer}
    case = Case(recorded.family, name, recorded.kind, inputs, recorded.expected)
    # TensorFlow 1 moves the rows that are named, so a recording is no yardstick here.
    assert excuse(case, "keras3", "eager") and not excuse(recorded, "keras3", "eager")
    names = registry.load("reference")
    expected = agn.replay(case, KerasRules("numpy", names))
    driver = drivers.load("keras3", "eager")
    compared = 0
    for got, wanted in zip(agn.replay(case, driver), expected, strict=True):
        for quantity in wanted.keys() & got.keys():
            if (name, quantity[:14]) == ("RMSProp", "slots/momentum"):
                continue  # without momentum Keras has no such slot
            found = distance(got[quantity], wanted[quantity]).ulp
            # As in test_keras_rows.
            assert found <= 8, f"{quantity}: {found:g} ULP"
            compared += 1
    assert compared
