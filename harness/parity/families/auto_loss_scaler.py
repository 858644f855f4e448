"""Families ``auto_loss_scaler_*``: the scaler, and its check of gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.parity.cases import Case, State, array
from harness.parity.drivers.protocol import Driver
from harness.parity.trajectory import lone_gradients, scalar

FAMILIES = ("auto_loss_scaler_backoff", "auto_loss_scaler_logmax")
INPUTS = "algorithm params updates gradients dtypes".split()
EXPECTED = "initial steps raises has_nan amax amax_dtype".split()


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Feed the updates to a scaler, or let it check gradients."""
    if "gradients" in case.inputs:
        yield _checked(case, driver)
        return
    scaler = driver.names.AutomaticLossScaler(
        case.inputs["algorithm"], case.inputs["params"]
    )
    update = driver.compile(lambda values: [scaler.update_op(*values)])
    for entry in case.inputs.get("updates", []):
        value = update([np.array(entry["has_nan"]), array(entry["amax"], "float32")])
        state = {**scaler.state, "loss_scale": scaler.loss_scale}
        read = {name: driver.read(entry) for name, entry in state.items()}
        read["update_op_value"] = value[0]
        yield {name: scalar(name, entry) for name, entry in read.items()}


def expectations(case: Case) -> Iterator[State]:
    """Yield the recorded states, or the recorded result of the check."""
    if "has_nan" in case.expected:
        amax = array(case.expected["amax"], case.expected["amax_dtype"])
        yield {"has_nan": np.asarray(case.expected["has_nan"]), "amax": amax}
        return
    for step in case.expected["steps"]:
        yield {name: scalar(name, value) for name, value in step.items()}


def _checked(case: Case, driver: Driver) -> State:
    def check(gradients: list[Any]) -> Any:
        pairs = [(g, f"variable {k}") for k, g in enumerate(gradients)]
        return list(driver.names.AutomaticLossScaler.check_grads(pairs))

    dtypes = [dtype or "float32" for dtype in case.inputs["dtypes"]]
    gradients = lone_gradients(case.inputs["gradients"], dtypes)
    has_nan, amax = driver.compile(check)(gradients)
    return {"has_nan": np.asarray(has_nan), "amax": np.asarray(amax)}
