"""Families ``auto_loss_scaler_*``: the scaler, and its check of gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from harness.parity.cases import (
    CannotInterpretError,
    Case,
    Variable,
    array,
    gradient,
)
from harness.parity.drivers.protocol import Driver
from lockstep.interface import Array, Gradient

__all__ = ["FAMILIES", "KINDS", "expectations", "replay"]

FAMILIES = ("auto_loss_scaler_backoff", "auto_loss_scaler_logmax")

State = Mapping[str, Array]

KINDS = frozenset(
    {
        "random_pattern",
        "no_overflow",
        "window_modulo",
        "window_modulo_start",
        "window_one",
        "floor",
        "has_nan_flag",
        "nan_amax",
        "negative_infinite_amax",
        "defaults",
        "algorithm_name",
        "factor_below_one",
        "inverted_bounds",
        "bad_params",
        "check_grads",
        "finite",
        "nonfinite",
        "nonfinite_first",
        "log_max",
        "zero_amax",
        "denormal_amax",
        "no_gradients",
    }
)
INPUTS = ("algorithm", "params", "updates", "gradients", "dtypes")
EXPECTED = ("initial", "steps", "raises", "has_nan", "amax", "amax_dtype")
COUNTERS = ("iteration", "last_overflow_iteration", "update_op_value")


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Feed the updates to a scaler, or let it check gradients."""
    case.require_known(INPUTS, EXPECTED)
    if case.kind == "check_grads":
        yield _checked(case, driver)
        return
    scaler = driver.names.AutomaticLossScaler(
        case.inputs["algorithm"], case.inputs["params"]
    )
    update = driver.compile(lambda values: [scaler.update_op(*values)])
    for entry in case.inputs.get("updates", []):
        value = update([np.array(entry["has_nan"]), array(entry["amax"], "float32")])
        yield {
            **{name: _typed(name, driver.read(v)) for name, v in scaler.state.items()},
            "loss_scale": np.asarray(driver.read(scaler.loss_scale), np.float32),
            "update_op_value": _typed("update_op_value", value[0]),
        }


def expectations(case: Case) -> Iterator[State]:
    """Yield the recorded states, or the recorded result of the check."""
    if case.kind == "check_grads":
        dtype = case.expected["amax_dtype"]
        has_nan = np.asarray(case.expected["has_nan"])
        yield {"has_nan": has_nan, "amax": array(case.expected["amax"], dtype)}
        return
    for step in case.expected["steps"]:
        yield {
            name: array(value, "int64" if name in COUNTERS else "float32")
            for name, value in step.items()
        }


def _typed(name: str, value: Any) -> Array:
    return np.asarray(value, np.int64 if name in COUNTERS else np.float32)


def _checked(case: Case, driver: Driver) -> State:
    def check(gradients: list[Any]) -> Any:
        pairs = [(g, f"variable {k}") for k, g in enumerate(gradients)]
        return list(driver.names.AutomaticLossScaler.check_grads(pairs))

    entries = zip(case.inputs["gradients"], case.inputs["dtypes"], strict=True)
    has_nan, amax = driver.compile(check)([_gradient(*entry) for entry in entries])
    return {"has_nan": np.asarray(has_nan), "amax": np.asarray(amax)}


def _gradient(value: Any, dtype: str | None) -> Gradient:
    """Decode a gradient without a variable."""
    if value is None:
        return None
    if not isinstance(value, dict):
        return array(value, dtype or "float32")
    shape = value.get("dense_shape")
    if shape is None:
        raise CannotInterpretError("a sparse gradient without a dense shape")
    named = Variable("", np.empty(shape, dtype), tuple(shape))
    return gradient(value, named)
