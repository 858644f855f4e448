"""One mutant: a small edit of one module, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import takewhile
from operator import eq
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "Edit", "Mutant", "edit_between", "module_name", "source_of"]

ROOT = Path(__file__).resolve().parent.parent.parent
"""The checkout."""


@dataclass(frozen=True)
class Edit:
    """The characters from ``start`` to ``end`` become ``text``."""

    start: int
    end: int
    text: str

    def applied_to(self, source: str) -> str:
        """Return the source after the edit."""
        return source[: self.start] + self.text + source[self.end :]

    def lines(self, source: str) -> tuple[str, str]:
        """Return the lines that change, before and after, without their indentation."""
        first = source.rfind("\n", 0, self.start) + 1
        last = source.find("\n", self.end)
        last = len(source) if last < 0 else last
        before, after = source[first:last], self.applied_to(source)
        return _plain(before), _plain(after[first : last + len(after) - len(source)])


def _plain(lines: str) -> str:
    return " ".join(lines.split())


def edit_between(source: str, changed: str) -> Edit:
    """Return a small edit that makes ``changed`` of ``source``."""
    start = _alike(source, changed)
    tail = _alike(source[:start:-1], changed[:start:-1])
    return Edit(start, len(source) - tail, changed[start : len(changed) - tail])


def _alike(first: str, second: str) -> int:
    """Return how many characters at the beginning are the same."""
    return sum(takewhile(bool, map(eq, first, second)))


@dataclass(frozen=True)
class Mutant:
    """One mutant of a module.

    Attributes:
        path: the module's file in the checkout.
        operator: the name of Cosmic Ray's operator.
        occurrence: the number of the place in the module, of those of the operator.
        line: where it starts, counted from 1.
        definition: the function or class that the place is in; empty without one.
        edit: what is changed.
        digest: of the module, see ``harness.mutation.digests``.
    """

    path: str
    operator: str
    occurrence: int
    line: int
    definition: str
    edit: Edit
    digest: str

    @property
    def id(self) -> str:
        """The name of the mutant; another source of the module has other ones."""
        return f"{self.path}@{self.digest}:{self.operator}:{self.occurrence}"

    @property
    def module(self) -> str:
        """The name under which Python imports the module."""
        return module_name(self.path)

    def as_json(self) -> dict[str, Any]:
        """Return the mutant for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Mutant:
        """Read a mutant back."""
        return cls(**{**content, "edit": Edit(**content["edit"])})


def module_name(path: str) -> str:
    """Return the name under which Python imports a module of the checkout."""
    parts = Path(path).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def source_of(path: str) -> str:
    """Return the source of a module of the checkout."""
    return (ROOT / path).read_text("utf-8")
