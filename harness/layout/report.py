"""The counts as a file in ``results/`` and as tables in the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

from harness.layout.calls import Calls
from harness.layout.modules import read_modules
from harness.layout.repetition import REPETITION, participles
from harness.layout.sizes import SIZES

__all__ = [
    "FILE",
    "PARTS",
    "ROOT",
    "Counts",
    "Layout",
    "count_layout",
    "read_layout",
    "static_counts",
    "write_layout",
]

ROOT = Path(__file__).resolve().parent.parent.parent
"""The checkout."""


FILE = "layout.json"
"""Name of the file in the results folder."""

PARTS = ("impls", "harness")
"""The packages that are counted."""

EACH = {**SIZES, "assignments to a participle": participles}
"""Counts of each part. Repetitions between backends are counted in impls only."""

Counts: TypeAlias = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Layout:
    """All counts of a checkout.

    Attributes:
        counts: name of a count -> part of the checkout -> number.
        steps: name of a step -> backend -> calls of Lockstep during one step.
    """

    counts: Counts
    steps: Mapping[str, Mapping[str, Calls]]

    def print(self, console: Console) -> None:
        """Print a table of the counts and a table of the steps."""
        console.print(_table("count", PARTS, self.counts))
        cells = {
            name: {
                backend: " / ".join(map(str, calls)) for backend, calls in of.items()
            }
            for name, of in self.steps.items()
        }
        backends = list(dict.fromkeys(b for of in self.steps.values() for b in of))
        console.print(_table("calls / files / changes of file", backends, cells))


def _table(
    head: str,
    columns: list[str] | tuple[str, ...],
    rows: Mapping[str, Mapping[str, object]],
) -> Table:
    table = Table(head)
    for column in columns:
        table.add_column(column, justify="right")
    for name, cells in rows.items():
        table.add_row(name, *(str(cells.get(column, "")) for column in columns))
    return table


def count_layout(root: Path) -> Layout:
    """Count the checkout at ``root`` and the steps of the installed backends."""
    from harness.layout.steps import call_counts

    return Layout(static_counts(root), call_counts())


def static_counts(root: Path) -> dict[str, dict[str, int]]:
    """Return the counts that only need the files of a checkout."""
    modules = {part: read_modules(root, part) for part in PARTS}
    sizes = {
        name: {part: count(modules[part]) for part in PARTS}
        for name, count in EACH.items()
    }
    repetition = {
        name: {"impls": count(modules["impls"])} for name, count in REPETITION.items()
    }
    return {**sizes, **repetition}


def write_layout(layout: Layout, results: Path) -> Path:
    """Write the counts to ``layout.json``. The same counts give the same bytes."""
    steps = {
        name: {backend: calls._asdict() for backend, calls in of.items()}
        for name, of in layout.steps.items()
    }
    path = results / FILE
    text = json.dumps({"counts": layout.counts, "steps": steps}, indent=1)
    path.write_text(f"{text}\n", "utf-8")
    return path


def read_layout(results: Path) -> Layout | None:
    """Return the counts of ``layout.json``, or None if the file does not exist."""
    path = results / FILE
    if not path.exists():
        return None
    content = json.loads(path.read_text("utf-8"))
    steps = {
        name: {backend: Calls(**calls) for backend, calls in of.items()}
        for name, of in content["steps"].items()
    }
    return Layout(content["counts"], steps)
