"""Wrappers around Keras' own optimizers, against the reference with Keras' rules.

Golden data -> the reference with TF1's rules proves the logic of the wrapper; this
proves the same wrapper around the optimizers of Keras, dense and sparse.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from harness.parity.cases import GOLDEN, Case, gradient, read_cases
from harness.parity.distance import distance
from harness.parity.tests import keras_rules as rules
from lockstep import reference
from lockstep.interface import Rows
from lockstep.reference.optimizers.rules import ftrl

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
keras = pytest.importorskip("keras")
keras3 = pytest.importorskip("lockstep.keras3")
driver = pytest.importorskip("harness.parity.drivers.keras3")

KINDS = ("zero_patterns", "negative_zero", "sparse")
CASES = [
    case
    for case in read_cases(GOLDEN, ["multitask"])
    if case.kind in KINDS and "wrapper" in case.inputs
][::4]
"""Every fourth, for the sake of time: Keras builds an optimizer for each."""
ALLOWED = 8.0
"""Keras' kernels take pow and rsqrt approximately, and its rules order some operations
otherwise; the differences add up over the steps of a case."""

Made = tuple[Callable[..., Any], Callable[[], Any]]
RULES: dict[str, Made] = {
    "momentum": (
        lambda: rules.KerasSGD(0.1, 0.9),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    ),
    "nesterov": (
        lambda: rules.KerasSGD(0.1, 0.9, use_nesterov=True),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    ),
    "adam": (
        lambda: rules.KerasAdam(0.01, epsilon=1e-7),
        lambda: keras.optimizers.Adam(0.01),
    ),
    "adamw": (
        lambda: rules.KerasAdamW(0.1, 0.01, epsilon=1e-7),
        lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
    ),
    "adagrad": (
        lambda: rules.KerasAdagrad(0.1),
        lambda: keras3.AdagradOptimizer(0.1),
    ),
    "rmsprop": (
        lambda: rules.KerasRMSprop(0.1, momentum=0.5),
        lambda: keras3.RMSPropOptimizer(0.1, momentum=0.5),
    ),
    "ftrl": (
        lambda: rules.KerasFtrl(0.1, l1_regularization_strength=0.01),
        lambda: keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.01),
    ),
}


def cases_and_rules(cases: Sequence[Case]) -> pytest.MarkDecorator:
    """Parametrize by both; every other pair waits for the soak."""
    pairs = [
        pytest.param(
            *(case, rule),
            id=f"{case.id}-{rule}",
            marks=[pytest.mark.soak] * ((row + column) % 2),
        )
        for row, case in enumerate(cases)
        for column, rule in enumerate(RULES)
    ]
    return pytest.mark.parametrize(("case", "rule"), pairs)


def power(policy: Any, accum: Any) -> Any:
    """Return accum^-p as TensorFlow's kernel rounds it.

    Ftrl divides a difference of two powers by the rate, 0.1, and so makes the last
    digit of a power ten times as large: correctly rounded ones are up to 14 ULP off.
    """
    exponent = -policy.learning_rate_power.astype(accum.dtype)
    return driver.tf.pow(accum, exponent).numpy()


@pytest.mark.sample(4)
@cases_and_rules(CASES)
def test_the_wrapped_optimizer_of_the_framework_follows_its_own_rule(
    case: Case, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_reference, make_driver = RULES[rule]
    monkeypatch.setattr(ftrl, "root", power)
    ours = [reference.Variable(v.name, v.value) for v in case.variables]
    theirs = [keras.Variable(v.value, name=v.name) for v in case.variables]
    inner = make_reference()
    expected = reference.MultitaskOptimizerWrapper(inner)
    wrapper = keras3.MultitaskOptimizerWrapper(make_driver())
    wrapper.build(theirs)
    for step in case.inputs["gradients"]:
        gradients = [gradient(g, v) for g, v in zip(step, case.variables, strict=True)]
        if all(g is None for g in gradients):
            continue
        before = [state_of(wrapper, variable) for variable in theirs]
        expected.apply_gradients(list(zip(gradients, ours, strict=True)))
        tensors = [driver.to_tensor(g) for g in gradients]
        wrapper.apply_gradients(list(zip(tensors, theirs, strict=True)))
        if not expected.last_step.applied:
            # Keras' counter is its global step.
            inner.advance_shared()
        for k, variable in enumerate(theirs):
            after = state_of(wrapper, variable)
            if gradients[k] is None or is_zero(gradients[k]):
                same = [a.tobytes() == b.tobytes() for a, b in pairs(before[k], after)]
                assert all(same), f"{variable.path} was touched"
            wanted = {"": ours[k].value, **inner.slots.get(id(ours[k]), {})}
            for name in wanted:
                found = distance(after[name], wanted[name]).ulp
                assert found <= ALLOWED, f"{name} of {variable.path}: {found:g} ULP"


def state_of(wrapper: Any, variable: Any) -> dict[str, Any]:
    """Return copies of a variable and its slots."""
    names = wrapper.get_slot_names()
    slots = {name: wrapper.get_slot(variable, name).numpy().copy() for name in names}
    return {"": variable.numpy().copy(), **slots}


def pairs(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[Any, Any]]:
    return [(before[name], after[name]) for name in before]


def is_zero(given: Any) -> bool:
    """Whether a gradient is zero, duplicate rows summed."""
    if not isinstance(given, Rows):
        return not np.any(given)
    sums = {int(i): 0.0 for i in given.indices}
    for index, row in zip(given.indices, given.values, strict=True):
        sums[int(index)] = sums[int(index)] + row
    return not any(np.any(total) for total in sums.values())
