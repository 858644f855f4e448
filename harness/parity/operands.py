"""The size of a rule's operands whose rounding errors appear in the result."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.parity.cases import Case
from harness.parity.distance import magnitude
from lockstep.interface import Array

__all__ = ["largest_weights", "operands"]

State = Mapping[str, Array]


def largest_weights(before: State, state: State) -> State:
    """Return the largest magnitude that each element of a variable has had so far."""
    with np.errstate(invalid="ignore"):
        return {
            name: np.fmax(np.abs(before.get(name, value)), np.abs(value))
            for name, value in state.items()
            if name.startswith("variables/")
        }


def operands(case: Case, weights: State, after: State) -> dict[str, float]:
    """Return the largest operand of each quantity of a recorded step.

    Only Ftrl has any. It adds (n^-p - accum^-p) / rate w to its slot ``linear``. The
    two powers are nearly equal, and each, divided by the rate, is far larger than the
    difference. ``weights`` are the largest magnitudes so far, because a weight keeps
    the rounding errors.
    """
    optimizer = case.inputs.get("optimizer")
    if case.optimizer != "Ftrl" or not isinstance(optimizer, Mapping):
        return {}
    power = -optimizer["args"].get("learning_rate_power", -0.5)
    rate = optimizer["args"]["learning_rate"]
    largest = {}
    for key, accum in after.items():
        slot, _, name = key.partition("/accum/")
        weight = weights.get(f"variables/{name}")
        if slot == "slots" and weight is not None:
            with np.errstate(all="ignore"):
                taken = accum.astype(np.float64) ** power / rate * weight
                largest[f"slots/linear/{name}"] = magnitude(taken.astype(accum.dtype))
    return largest
