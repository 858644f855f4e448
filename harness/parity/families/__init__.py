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
from collections.abc import Mapping
from typing import Any

__all__ = ["BY_FAMILY"]

BY_FAMILY: Mapping[str, Any] = {
    family: module
    for found in pkgutil.iter_modules(__path__, f"{__name__}.")
    for module in [importlib.import_module(found.name)]
    for family in module.FAMILIES
}
"""Family -> the module that replays its cases."""
