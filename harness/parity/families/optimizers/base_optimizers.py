"""Family ``base_optimizers``: plain ``apply_gradients`` of the TF1 optimizers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from harness.parity.cases import Case
from harness.parity.drivers.protocol import Driver
from harness.parity.trajectory import Training, recorded_trajectory
from lockstep.interface import Array

__all__ = ["FAMILIES", "KINDS", "expectations", "replay"]

FAMILIES = ("base_optimizers",)

KINDS = frozenset(
    {"dense", "sparse", "float16", "defaults", "subnormal", "extreme", "nonfinite"}
)

INPUTS = ("optimizer", "variables", "gradients", "variable_kind")


def replay(case: Case, driver: Driver) -> Iterator[Mapping[str, Array]]:
    """Apply the gradients with the bare optimizer."""
    case.require_known(INPUTS, ("initial", "steps"))
    training = Training(case, driver)
    yield from training.run(training.base)


def expectations(case: Case) -> Iterator[Mapping[str, Array]]:
    """Yield the recorded trajectory."""
    yield from recorded_trajectory(case)
