"""Drivers: a uniform interface of NumPy arrays to each backend."""

from __future__ import annotations

import importlib

from harness.parity.drivers.protocol import Driver
from lockstep import registry
from lockstep.errors import unknown_name

__all__ = ["load"]


def load(
    name: str, mode: str | None = None, strict: bool | None = None, device: str = "cpu"
) -> Driver:
    """Return the driver of the backend ``name`` in one of its execution modes.

    ``strict``: replay the originals' behaviour; None: if the backend has it.

    Raises:
        UnknownNameError: there is no such backend or mode. It names the nearest one.
        UnsupportedError: the backend cannot use ``device`` here.
    """
    backend = registry.find(name)
    names = registry.load(name, backend.has_strict if strict is None else strict)
    chosen = mode or backend.modes[0]
    if chosen not in backend.modes:
        raise unknown_name(f"mode of {name}", chosen, backend.modes)
    module = importlib.import_module(f"harness.parity.drivers.{name}")
    driver: Driver = module.make_driver(chosen, names, device)
    return driver
