"""States that are not finite: those of Keras' own class, to the bit.

There Keras' order of operations gives NaN where TensorFlow 1 gives infinity or zero, so
the recorded states are not compared; that the rules here add nothing to it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.parity.cases import FOUND, GOLDEN, Case, gradient, read_cases

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
keras = pytest.importorskip("keras")
keras3 = pytest.importorskip("lockstep.keras3")
driver = pytest.importorskip("harness.parity.drivers.keras3")

CASES = [
    case
    for folder in (GOLDEN, FOUND)
    for case in read_cases(folder, ["base_optimizers", "multitask"])
    if case.optimizer in ("RMSProp", "Ftrl") and not (case.finite or case.sparse)
]
MADE: dict[str, Callable[..., Any]] = {
    "RMSProp": keras.optimizers.RMSprop,
    "Ftrl": keras.optimizers.Ftrl,
}


def trained(optimizer: Any, case: Case) -> list[bytes]:
    """Return every variable and slot after every step, as bytes."""
    weights = [keras.Variable(v.value, name=v.name) for v in case.variables]
    weights = [w for w in weights if 0 not in w.shape]
    optimizer.build(weights)
    if type(optimizer) is keras.optimizers.RMSprop:
        for slot in optimizer.variables:
            if "velocity" in slot.path:
                slot.assign(np.ones(slot.shape, np.float32))
    found = []
    for step in case.inputs["gradients"]:
        given = [gradient(g, v) for g, v in zip(step, case.variables, strict=True)]
        tensors = [driver.to_tensor(g) for g in given if np.size(g)]
        optimizer.apply(tensors, weights)
        found += [v.numpy().tobytes() for v in (*weights, *optimizer.variables)]
    return found


def test_there_are_cases_of_both_rules() -> None:
    assert {case.optimizer for case in CASES} == set(MADE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_what_is_not_finite_is_what_keras_makes_of_it(case: Case) -> None:
    if any(g is None for step in case.inputs["gradients"] for g in step):
        pytest.skip("bare Keras passes over an absent gradient with a warning")
    args = case.inputs["optimizer"]["args"]
    ours = getattr(keras3, f"{case.optimizer}Optimizer")(**args)
    known = {"learning_rate": "learning_rate", **ours.renamed}
    named = {known[k]: v for k, v in ours.bound.items() if k in known}
    theirs = MADE[case.optimizer](**named)
    assert trained(ours, case) == trained(theirs, case)
