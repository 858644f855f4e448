"""Family ``lr_policies``: each policy with steps as tensors and as plain numbers."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.parity.cases import CannotInterpretError, Case, State, array
from harness.parity.drivers.protocol import Driver
from lockstep.policies import POLICIES

FAMILIES = ("lr_policies",)
INPUTS = ("policy", "args", "global_steps", "global_step")
EXPECTED = ("dtype", "learning_rates", "raises")
PYTHON = "python"


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Compute the rate at every step, passed as a tensor and as a number."""
    name, args = case.inputs["policy"], case.inputs["args"]
    if name not in POLICIES:
        raise CannotInterpretError(f"the policy {name!r}")
    policy = getattr(driver.names.lr_policies, name)
    numbers_returned: list[Any] = []

    def at(steps: list[Any]) -> Any:
        rate = policy(steps[0], **args)
        if isinstance(rate, numbers.Number) and not hasattr(rate, "dtype"):
            numbers_returned[:] = [rate]
            return []
        return [rate]

    if "global_step" in case.inputs:
        policy(case.inputs["global_step"], **args)
        return
    compiled = driver.compile(at)
    for step in case.inputs["global_steps"]:
        rates = compiled([np.array(step, np.int64)]) or numbers_returned[-1:]
        plain = _read(driver, policy(step, **args), case)
        yield {**_named("", rates[0]), **_named("plain step/", plain)}


def expectations(case: Case) -> Iterator[State]:
    """Yield the recorded rate at every step, twice, in its dtype."""
    dtype = case.expected["dtype"]
    for rate in case.expected["learning_rates"]:
        value = rate if dtype == PYTHON else array(rate, dtype)
        yield {**_named("", value), **_named("plain step/", value)}


def _named(prefix: str, rate: Any) -> State:
    """Return a rate and its dtype as quantities."""
    is_array = hasattr(rate, "dtype")
    dtype = np.asarray(rate).dtype.name if is_array else PYTHON
    value = np.asarray(rate if is_array else np.float64(rate))
    return {f"{prefix}dtype": np.array(dtype), f"{prefix}learning_rate": value}


def _read(driver: Driver, rate: Any, case: Case) -> Any:
    """Read a tensor. Convert a plain number to the dtype of the case."""
    if hasattr(rate, "dtype"):
        return driver.read(rate)
    dtype = case.expected.get("dtype", PYTHON)
    if driver.backend == "reference":
        dtype = case.inputs["args"].get("dtype", dtype)
    return rate if dtype == PYTHON else array(rate, dtype)
