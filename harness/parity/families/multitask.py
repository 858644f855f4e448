"""Family ``multitask``: the multitask wrapper, alone and in chains."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from harness.parity.cases import CannotInterpretError, Case
from harness.parity.drivers.protocol import Driver
from harness.parity.families.clipping import variable_clipping
from harness.parity.trajectory import Training, recorded_trajectory
from lockstep.interface import Array

__all__ = ["FAMILIES", "KINDS", "expectations", "replay"]

FAMILIES = ("multitask",)

KINDS = frozenset(
    {
        "zero_patterns",
        "sparse",
        "negative_zero",
        "denormal",
        "nonfinite",
        "extreme",
        "float16",
        "chain_clip_over_multitask",
        "chain_multitask_over_clip",
        "side_effect_on_wrapped",
        "not_an_optimizer",
        "sparse_without_dense_shape",
    }
)

INPUTS = (
    "wrapper",
    "optimizer",
    "variables",
    "gradients",
    "variable_kind",
    "vars_to_clip_dims",
    "max_norm",
    "argument",
)

NOT_OPTIMIZERS: Mapping[str, Any] = {
    "int": 3,
    "float": 0.1,
    "string": "Momentum",
    "None": None,
    "list": [],
    "class": object,
}


def replay(case: Case, driver: Driver) -> Iterator[Mapping[str, Array]]:
    """Build the wrappers named by ``wrapper`` and apply the gradients to them."""
    case.require_known(INPUTS, ("initial", "steps", "raises"))
    if "argument" in case.inputs:
        driver.names.MultitaskOptimizerWrapper(
            _argument(case.inputs["argument"], driver)
        )
        return
    training = Training(case, driver)
    spelled = case.inputs.get("wrapper", "MultitaskOptimizerWrapper")
    construction, _, rest = spelled.partition(" built, then ")
    if rest not in ("", "'optimizer' itself applied"):
        raise CannotInterpretError(f"the wrapper {spelled!r}")
    wrapper = _construct(construction, case, training)
    yield from training.run(training.base if rest else wrapper)


def expectations(case: Case) -> Iterator[Mapping[str, Array]]:
    """Yield the recorded trajectory."""
    yield from recorded_trajectory(case)


def _construct(spelled: str, case: Case, training: Training) -> Any:
    """Build the nested wrappers that ``spelled`` names, around the optimizer."""
    if spelled == "optimizer":
        return training.base
    name, _, inside = spelled.removesuffix(")").partition("(")
    inner = _construct(inside or "optimizer", case, training)
    names = training.driver.names
    if name == "MultitaskOptimizerWrapper":
        return names.MultitaskOptimizerWrapper(inner)
    if name != "VariableClippingOptimizer":
        raise CannotInterpretError(f"the wrapper {spelled!r}")
    dims = case.inputs.get("vars_to_clip_dims", {})
    return variable_clipping.clipped(inner, dims, case.inputs["max_norm"], training)


def _argument(spelled: str, driver: Driver) -> Any:
    """Create the argument to wrap in a case of kind ``not_an_optimizer``."""
    if spelled in NOT_OPTIMIZERS:
        return NOT_OPTIMIZERS[spelled]
    match = re.fullmatch(r"MultitaskOptimizerWrapper(?:\((\w+)\))?", spelled)
    if match is None:
        raise CannotInterpretError(f"the argument {spelled!r}")
    name = match[1] or "Momentum"
    args = {"Adam": {}, "Momentum": {"learning_rate": 0.1, "momentum": 0.9}}
    base = driver.optimizer(name, args.get(name, {"learning_rate": 0.1}), [])
    return driver.names.MultitaskOptimizerWrapper(base)
