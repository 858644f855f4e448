"""One mutant: a small edit of one module, and its position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import takewhile
from operator import eq
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
"""The checkout."""


@dataclass(frozen=True)
class Edit:
    """Replaces the characters from ``start`` to ``end`` by ``text``."""

    start: int
    end: int
    text: str

    def applied_to(self, source: str) -> str:
        """Return the source after the edit."""
        return source[: self.start] + self.text + source[self.end :]

    def lines(self, source: str) -> tuple[str, str]:
        """Return the changed lines, before and after, without indentation."""
        first = source.rfind("\n", 0, self.start) + 1
        last = source.find("\n", self.end)
        last = len(source) if last < 0 else last
        before, after = source[first:last], self.applied_to(source)
        return _plain(before), _plain(after[first : last + len(after) - len(source)])


def _plain(lines: str) -> str:
    return " ".join(lines.split())


def edit_between(source: str, changed: str) -> Edit:
    """Return a small edit that turns ``source`` into ``changed``."""
    start = _alike(source, changed)
    tail = _alike(source[:start:-1], changed[:start:-1])
    return Edit(start, len(source) - tail, changed[start : len(changed) - tail])


def _alike(first: str, second: str) -> int:
    """Return the length of the common beginning."""
    return sum(takewhile(bool, map(eq, first, second)))


@dataclass(frozen=True)
class Mutant:
    """One mutant of a module.

    Attributes:
        path: the module's file in the checkout.
        operator: the name of Cosmic Ray's operator.
        occurrence: index of the place among those of the operator in the module.
        line: first line, counted from 1.
        definition: function or class that contains the place; empty without one.
        edit: the change.
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
        """The name of the mutant. It changes with the source of the module."""
        return f"{self.path}@{self.digest}:{self.operator}:{self.occurrence}"

    @property
    def module(self) -> str:
        """The name under which Python imports the module."""
        return module_name(self.path)

    def as_json(self) -> dict[str, Any]:
        """Return the mutant as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Mutant:
        """Build a mutant from JSON."""
        return cls(**{**content, "edit": Edit(**content["edit"])})


def module_name(path: str) -> str:
    """Return the name under which Python imports a module of the checkout."""
    parts = Path(path).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def source_of(path: str) -> str:
    """Return the source of a module of the checkout."""
    return (ROOT / path).read_text("utf-8")
