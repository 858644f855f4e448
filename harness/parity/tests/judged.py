"""A recorded case, as it is or changed, and the verdict on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.parity import drivers
from harness.parity.cases import GOLDEN, Case, read_cases
from harness.parity.replay import replay
from harness.parity.row import Row


def single(*values: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(values, dtype)


def case(family: str, identifier: str) -> Case:
    return next(c for c in read_cases(GOLDEN, [family]) if c.id == identifier)


def changed(original: Case, **fields: Any) -> Case:
    inputs = {**original.inputs, **fields.pop("inputs", {})}
    expected = {**original.expected, **fields.pop("expected", {})}
    names = {"family": original.family, "id": original.id, "kind": original.kind}
    return Case(**{**names, **fields}, inputs=inputs, expected=expected)


MULTITASK = case("multitask", "multitask-p-003")


def judged(candidate: Case) -> Row:
    return replay(candidate, drivers.load("reference"))[0]
