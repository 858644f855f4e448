"""Family ``base_optimizers``: plain ``apply_gradients`` of the TF1 optimizers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from harness.parity.cases import Case
from harness.parity.drivers.protocol import Driver
from harness.parity.trajectory import Training, recorded_trajectory
from lockstep.interface import Array

FAMILIES = ("base_optimizers",)
INPUTS = ("optimizer", "variables", "gradients", "variable_kind")
EXPECTED = ("initial", "steps")

expectations = recorded_trajectory


def replay(case: Case, driver: Driver) -> Iterator[Mapping[str, Array]]:
    """Apply the gradients with the bare optimizer."""
    training = Training(case, driver)
    yield from training.run(training.base)
