"""Families ``base_optimizers`` and ``multitask``: an optimizer, bare or wrapped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.parity.cases import CannotInterpretError, Case, State
from harness.parity.drivers.protocol import Driver
from harness.parity.families.variable_clipping import clipped
from harness.parity.trajectory import Training, recorded_trajectory

FAMILIES = ("base_optimizers", "multitask")
INPUTS = (
    "wrapper optimizer variables gradients variable_kind vars_to_clip_dims max_norm "
    "argument"
).split()
EXPECTED = ("initial", "steps", "raises")

expectations = recorded_trajectory


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Build the wrappers named by ``wrapper`` and apply the gradients to them."""
    if "argument" in case.inputs:
        _wrapped_twice(case, driver)
        return
    training = Training(case, driver)
    bare = case.family == "base_optimizers"
    default = "optimizer" if bare else "MultitaskOptimizerWrapper"
    spelled = case.inputs.get("wrapper", default)
    construction, _, rest = spelled.partition(" built, then ")
    if rest not in ("", "'optimizer' itself applied"):
        raise CannotInterpretError(f"the wrapper {spelled!r}")
    wrapper = _construct(construction, case, training)
    yield from training.run(training.base if rest else wrapper)


def _construct(spelled: str, case: Case, training: Training) -> Any:
    """Build the nested wrappers that ``spelled`` names, around the optimizer."""
    if spelled == "optimizer":
        return training.base
    name, _, inside = spelled.removesuffix(")").partition("(")
    inner = _construct(inside or "optimizer", case, training)
    if name == "MultitaskOptimizerWrapper":
        return training.driver.names.MultitaskOptimizerWrapper(inner)
    if name != "VariableClippingOptimizer":
        raise CannotInterpretError(f"the wrapper {spelled!r}")
    dims = case.inputs.get("vars_to_clip_dims", {})
    return clipped(inner, dims, case.inputs["max_norm"], training)


def _wrapped_twice(case: Case, driver: Driver) -> None:
    """Pass a wrapper to the wrapper, which the original refuses."""
    argument = case.inputs["argument"]
    if argument != "MultitaskOptimizerWrapper":
        raise CannotInterpretError(f"the argument {argument!r}")
    momentum = {"learning_rate": 0.1, "momentum": 0.9}
    base = driver.optimizer("Momentum", momentum, [])
    wrapper = driver.names.MultitaskOptimizerWrapper
    wrapper(wrapper(base))
