"""One module per family, which replays the family's cases. Its file is its only entry.

A module has

* ``FAMILIES``, whose cases it replays,
* ``INPUTS`` and ``EXPECTED``, the keys of a case that it can interpret,
* ``replay(case, driver)``, which yields the state after each step as a flat mapping
  from the name of a quantity to an array,
* ``expectations(case)``, which yields the recorded states in the same form.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Iterator, Mapping
from typing import Protocol, cast

from harness.parity.cases import Case
from harness.parity.drivers.protocol import Driver
from lockstep.interface import Array

__all__ = ["BY_FAMILY", "Family"]


class Family(Protocol):
    """The interface of the modules in this folder."""

    __name__: str
    FAMILIES: Collection[str]
    INPUTS: Collection[str]
    EXPECTED: Collection[str]

    def replay(self, case: Case, driver: Driver) -> Iterator[Mapping[str, Array]]:
        """Yield the backend's results, state by state."""
        ...

    def expectations(self, case: Case) -> Iterator[Mapping[str, Array]]:
        """Yield the recorded states."""
        ...


BY_FAMILY: Mapping[str, Family] = {
    family: cast("Family", module)
    for found in pkgutil.iter_modules(__path__, f"{__name__}.")
    for module in [importlib.import_module(found.name)]
    for family in module.FAMILIES
}
"""Family -> the module that replays its cases."""
