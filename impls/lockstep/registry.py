"""The backends by name; each is imported on demand."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from lockstep.errors import (
    MissingFrameworkError,
    UnsupportedError,
    sentence,
    unknown_name,
)
from lockstep.interface import EXPORTS
from lockstep.pipeline import WRAPPERS

AS_OPENSEQ2SEQ_SPELLS = ("_clip_by_global_norm", "_clip_gradients_by_norm")
"""Names with an underscore, under which old code imports these functions."""


@dataclass(frozen=True)
class Backend:
    """Description of a backend.

    Attributes:
        name: the name of its package in ``lockstep``.
        framework: the package that it needs; None for the reference.
        extras: public names besides those of every backend.
        modes: the execution modes. The first is the one in which parity replays a case
            by default.
        runs_on: a package that the framework itself needs.
        alias: another name that users may give by mistake.
        has_strict: whether it has a ``strict`` module.
        model_file: the module of a task with the model for this backend.
        colors: its colors in figures on light and on dark pages.
        marker: its marker in figures.
    """

    name: str
    framework: str | None
    modes: tuple[str, ...]
    extras: tuple[str, ...] = ()
    runs_on: str | None = None
    alias: str = ""
    has_strict: bool = True
    model_file: str = ""
    colors: tuple[str, str] = ("", "")
    marker: str = ""

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages that must be installed."""
        return tuple(filter(None, (self.framework, self.runs_on)))

    def public_names(self, strict: bool = False) -> tuple[str, ...]:
        """Return the public names of the package, or of its ``strict`` module."""
        old = AS_OPENSEQ2SEQ_SPELLS if strict else ()
        return tuple(dict.fromkeys((*EXPORTS, *self.extras, *old)))

    def names_in(
        self, module: Mapping[str, Any], strict: bool = False
    ) -> tuple[str, ...]:
        """Return ``__all__`` of a module: the public names, but no wrapper it lacks."""
        names = self.public_names(strict)
        return tuple(n for n in names if n in module or n not in WRAPPERS)


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(
            name="reference",
            framework=None,
            modes=("numpy",),
            extras=("Rows", "Variable"),
            alias="numpy",
            model_file="numpy_model",
            colors=("#6b7280", "#a8b0bd"),
            marker="D",
        ),
        Backend(
            name="tf",
            framework="tensorflow",
            modes=("eager", "function", "graph", "v1"),
            extras=("LossScale", *AS_OPENSEQ2SEQ_SPELLS),
            alias="tensorflow",
            model_file="tf_model",
            colors=("#c2609a", "#f09ac8"),
            marker="s",
        ),
        Backend(
            name="keras3",
            framework="keras",
            modes=("eager", "function"),
            extras=("PolicySchedule",),
            runs_on="tensorflow",
            has_strict=False,
            model_file="keras_model",
            colors=("#a67c00", "#f0d23c"),
            marker="^",
        ),
        Backend(
            name="pytorch",
            framework="torch",
            modes=("eager",),
            extras=("PolicyLR", "TensorBoardRecorder"),
            alias="torch",
            has_strict=False,
            model_file="torch_model",
            colors=("#009e73", "#3ecf9f"),
            marker="o",
        ),
    )
}

ALIASES = {backend.alias: name for name, backend in BACKENDS.items() if backend.alias}


def find(name: str) -> Backend:
    """Return the description of a backend; raise UnknownNameError if none exists."""
    if name not in BACKENDS:
        raise unknown_name("backend", name, BACKENDS, ALIASES)
    return BACKENDS[name]


def installed(name: str) -> bool:
    """Return whether a backend's framework can be imported, without importing it."""
    return all(importlib.util.find_spec(package) for package in find(name).packages)


def missing_framework(name: str) -> MissingFrameworkError:
    """Build the error for a backend whose framework is not installed."""
    backend = find(name)
    expected = f"{' and '.join(backend.packages)} to be installed"
    absent = [p for p in backend.packages if importlib.util.find_spec(p) is None]
    got = f"no {' and no '.join(absent or backend.packages)}"
    remedy = f"run pip install {' '.join(backend.packages)}"
    return MissingFrameworkError(sentence(f"lockstep.{name}", expected, got, remedy))


def load(name: str, strict: bool = False) -> ModuleType:
    """Import the backend ``name``, or its ``strict`` module.

    Raises:
        UnknownNameError: there is no such backend; the error suggests the nearest name.
        MissingFrameworkError: its framework is not installed; the error says how to
            install it.
        UnsupportedError: the backend has no ``strict`` module.
    """
    if not installed(name):
        raise missing_framework(name)
    if strict and not BACKENDS[name].has_strict:
        having = " or ".join(b.name for b in BACKENDS.values() if b.has_strict)
        raise UnsupportedError(
            f"lockstep.{name}.strict: expected a backend with the originals' exact "
            f"behaviour, got one with a single behaviour; load {having}."
        )
    module = f"lockstep.{name}.strict" if strict else f"lockstep.{name}"
    return importlib.import_module(module)
