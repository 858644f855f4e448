"""The catalogue of differences: every quirk of the originals and how we treat it.

The rows of ``catalogue.toml`` are quirks in which strict and the default differ, or in
which both follow the original although one might not expect it. Each entry of a row has
a section on docs/differences.md, a script, and quotes from recorded cases (``quotes``
replays them).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

MARKS = {
    "kept": "the default does what the original did",
    "fixed": "the default does what the original should have done",
    "refused": "the default raises an error at once",
    "own": "Keras 3 follows a rule of its own",
    "race": "the original gave one of several results, and ours is always the same",
}
"""What the default does instead of the original's behaviour."""


@dataclass(frozen=True)
class Quote:
    """A quoted quantity (``a/b/c``) of a recorded case after a step, counted from 1.

    Without ``quantity``, only errors are quoted. Without ``index``, a large array is
    quoted where the modes differ most. ``backend`` is BACKEND or BACKEND:MODE.
    """

    case: str
    quantity: str = ""
    step: int = 1
    index: Sequence[int] | None = None
    backend: str = "reference"
    note: str = ""


@dataclass(frozen=True)
class Entry:
    """One section of the page, with ``recorded`` quotes or the reason for none."""

    anchor: str
    does: Sequence[str]
    recorded: Sequence[Quote] = ()
    not_recorded: str = ""

    @property
    def script(self) -> str:
        """The name of the script, without its suffix."""
        return self.anchor.replace("-", "_")


@dataclass(frozen=True)
class Row:
    """One quirk of a component, and the sections of the page about it."""

    of: str
    quirk: str
    entries: Sequence[Entry]


@cache
def catalogue() -> Sequence[Row]:
    """Read ``catalogue.toml``."""
    path = Path(__file__).parent / "catalogue.toml"
    rows = tomllib.loads(path.read_text("utf-8"))["row"]
    return [_row(**row) for row in rows]


def entries() -> list[Entry]:
    """Return the entries of all rows."""
    return [entry for row in catalogue() for entry in row.entries]


def _row(of: str, quirk: str, entry: Sequence[Mapping[str, Any]]) -> Row:
    return Row(of, quirk, [_entry(**content) for content in entry])


def _entry(recorded: Sequence[Mapping[str, Any]] = (), **content: Any) -> Entry:
    return Entry(**content, recorded=[Quote(**quote) for quote in recorded])
