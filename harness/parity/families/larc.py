"""Family ``larc``: gradients are clipped if requested, then scaled by LARC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.parity.cases import CannotInterpretError, Case, State, array, gradient
from harness.parity.drivers.protocol import Driver
from harness.parity.trajectory import flat

FAMILIES = ("larc",)
INPUTS = (
    "variables variable_kind gradients learning_rate learning_rate_is larc_params "
    "clip_gradients"
).split()
EXPECTED = ("gradients", "dtypes", "raises")


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Process the gradients once."""
    recorded, kind = case.variables, case.inputs.get("variable_kind")
    variables = [driver.variable(v.name, v.value, kind) for v in recorded]
    rate_is = case.inputs.get("learning_rate_is", "tensor")
    if rate_is not in ("tensor", "python number"):
        raise CannotInterpretError(f"a learning rate that is {rate_is!r}")

    def function(arrays: list[Any]) -> Any:
        *gradients, rate = arrays
        if rate_is == "python number":
            rate = float(case.inputs["learning_rate"])
        processed = driver.names.post_process_gradients(
            list(zip(gradients, variables, strict=True)),
            [],
            rate,
            case.inputs.get("clip_gradients"),
            case.inputs["larc_params"],
        )
        return [g for g, _ in processed]

    pairs = zip(case.inputs["gradients"], recorded, strict=True)
    values = [gradient(value, variable) for value, variable in pairs]
    rate = np.asarray(case.inputs["learning_rate"], np.float32)
    results = driver.compile(function)([*values, rate])
    state: State = {}
    for variable, value in zip(recorded, results, strict=True):
        state |= flat(f"gradients/{variable.name}", value)
    yield state


def expectations(case: Case) -> Iterator[State]:
    """Yield the recorded gradients."""
    values, dtypes = case.expected["gradients"], case.expected["dtypes"]
    yield {
        f"gradients/{variable.name}": array(value, dtype, variable.shape)
        for variable, value, dtype in zip(case.variables, values, dtypes, strict=True)
    }
