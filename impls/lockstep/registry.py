"""Backends by name, loaded when asked for."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from types import ModuleType

from lockstep.messages.errors import MissingFrameworkError, sentence, unknown_name

__all__ = [
    "BACKENDS",
    "Backend",
    "find",
    "installed",
    "load",
    "missing_framework",
]


@dataclass(frozen=True)
class Backend:
    """One backend: its module name, the framework that it needs and its modes.

    ``modes`` are the ways in which its operations can run; the first is the one in
    which parity replays a case unless asked for more. ``runs_on`` is what the framework
    itself needs.
    """

    name: str
    framework: str | None
    extra: str | None
    modes: tuple[str, ...]
    runs_on: str | None = None

    @property
    def packages(self) -> tuple[str, ...]:
        """What has to be installed for it."""
        return tuple(filter(None, (self.framework, self.runs_on)))


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("reference", None, None, ("numpy",)),
        Backend("tf", "tensorflow", "tensorflow", ("eager", "function", "graph", "v1")),
        Backend(
            "keras3",
            "keras",
            "keras3",
            ("eager", "function"),
            runs_on="tensorflow",
        ),
        Backend("pytorch", "torch", "torch", ("eager",)),
    )
}


FRAMEWORKS = {"numpy": "reference", "tensorflow": "tf", "torch": "pytorch"}
"""What a backend may be called by mistake; Keras' own name is near enough."""


def find(name: str) -> Backend:
    """Return the description of a backend; UnknownNameError if there is none."""
    if name not in BACKENDS:
        raise unknown_name("backend", name, BACKENDS, FRAMEWORKS)
    return BACKENDS[name]


def installed(name: str) -> bool:
    """Say whether the framework of a backend can be imported, without importing it."""
    return all(importlib.util.find_spec(package) for package in find(name).packages)


def missing_framework(name: str) -> MissingFrameworkError:
    """Build the error for a backend whose framework is not installed."""
    backend = find(name)
    expected = f"{' and '.join(backend.packages)} to be installed"
    absent = [p for p in backend.packages if importlib.util.find_spec(p) is None]
    got = f"no {' and no '.join(absent or backend.packages)}"
    remedy = f"run pip install 'lockstep-optimizers[{backend.extra}]'"
    return MissingFrameworkError(sentence(f"lockstep.{name}", expected, got, remedy))


def load(name: str, strict: bool = False) -> ModuleType:
    """Import the backend ``name``, or its ``strict`` module.

    Raises:
        UnknownNameError: there is no such backend (the nearest name is given).
        MissingFrameworkError: its framework is not installed (the remedy is given).
    """
    if not installed(name):
        raise missing_framework(name)
    module = f"lockstep.{name}.strict" if strict else f"lockstep.{name}"
    return importlib.import_module(module)
