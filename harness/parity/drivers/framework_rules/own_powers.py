"""The reference with powers of beta at the center, as torch's and Keras' workers do.

There the center has an optimizer of its own, whose powers advance with each push.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.parity.drivers.reference import NumpyDriver
from lockstep import registry
from lockstep.interface import Array
from lockstep.pipeline import base_of
from lockstep.reference.agn import Center
from lockstep.reference.optimizers import Slots


class OwnPowers(Center):
    """A center that applies a push with its own powers instead of the worker's."""

    powers: Slots | None = None

    def push(self, changes: Mapping[str, Array], optimizer: Any = None) -> None:
        """Apply mean gradients with the worker's optimizer and the center's powers."""
        base = base_of(optimizer)
        workers = base.shared
        base.shared = self.powers or type(base)(**base.arguments).shared
        super().push(changes, optimizer)
        self.powers, base.shared = base.shared, workers


def make_driver() -> NumpyDriver:
    """Return a driver whose workers share such a center."""
    driver = NumpyDriver(registry.load("reference"))
    driver.make_center = OwnPowers
    return driver
