"""Family ``regularization_loss``: the sum of the collected losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.parity.cases import Case, State, array
from harness.parity.drivers.protocol import Driver

FAMILIES = ("regularization_loss",)
INPUTS = ("losses", "scope", "name", "dtype", "value", "l2")
EXPECTED = (
    "value dtype tensor_name registered_functions registered_losses total raises"
).split()


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Sum the losses, or the losses that a regularizer created."""
    yield _wrapped(case, driver) if "l2" in case.inputs else _summed(case, driver)


def expectations(case: Case) -> Iterator[State]:
    """Yield the recorded sum, its name, and what was registered."""
    if "total" in case.expected:
        counts = ("registered_functions", "registered_losses")
        named = {name: array(case.expected[name], "int64") for name in counts}
        yield {**named, "total": array(case.expected["total"], "float32")}
        return
    total = array(case.expected["value"], case.expected["dtype"])
    yield {"total": total, "tensor_name": np.array(case.expected["tensor_name"])}


def _summed(case: Case, driver: Driver) -> State:
    recorded = case.inputs["losses"]
    options = {
        key: case.inputs[key]
        for key in ("scope", "name")
        if case.inputs.get(key) is not None
    }
    state: State = {}

    def function(values: list[Any]) -> Any:
        named = {loss["name"]: v for loss, v in zip(recorded, values, strict=True)}
        arguments = driver.regularization_losses(named)
        total = driver.names.get_regularization_loss(**options, **arguments)
        state["tensor_name"] = np.array(driver.tensor_name(total))
        return [total]

    losses = [array(loss["value"], loss["dtype"]) for loss in recorded]
    (total,) = driver.compile(function)(losses)
    return {**state, "total": np.asarray(total)}


def _wrapped(case: Case, driver: Driver) -> State:
    value = array(case.inputs["value"], case.inputs["dtype"])
    weight = driver.variable("w", value)
    penalty = driver.penalty(float(case.inputs["l2"]))
    regularize = driver.names.mp_regularizer_wrapper(penalty)
    state: State = {}

    def function(nothing: list[Any]) -> Any:
        loss = regularize(weight)
        arguments = driver.regularization_losses({"w/regularizer": loss})
        total = driver.names.get_regularization_loss(**arguments)
        state["registered_losses"] = np.array(int(loss is not None))
        functions = driver.regularization_functions()
        if functions is not None:
            state["registered_functions"] = np.array(functions)
        return [total]

    (total,) = driver.compile(function)([])
    return {**state, "total": np.asarray(total)}
