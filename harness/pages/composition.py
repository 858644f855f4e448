"""What nests in what, and which stacks are resumed, as inserts for a page."""

from __future__ import annotations

from harness.composition.nesting import NESTINGS, NOTES, Nesting
from harness.composition.stacks import STACKS
from harness.pages.tables import Cell, table
from lockstep.registry import BACKENDS

__all__ = ["composition_inserts"]

NAMES = {
    "multitask": "Multitask",
    "rows": "Row clipping",
    "dynamic": "Loss scaling",
    "masters-dynamic": "Masters",
    "agn": "AGN",
}
"""Layer -> wrapper, as the page calls it."""


def composition_inserts() -> dict[str, str]:
    """Return the table of nestings, and the stacks that checkpoints are tried on."""
    return {"nesting": nesting_table(), "stacks": stacks_table()}


def nesting_table() -> str:
    """Return a row for each outer wrapper, a column for each inner one."""
    rows = [
        [f"{NAMES[outer]} around", *(_cell(NESTINGS[outer, inner]) for inner in NAMES)]
        for outer in NAMES
    ]
    columns = ["", *(f"… {lowered(name)}" for name in NAMES.values())]
    return str(table("What comes of one wrapper around another", columns, rows))


def lowered(name: str) -> str:
    """Return a name as it stands in the middle of a sentence."""
    return name if name.isupper() else name.lower()


def _cell(nesting: Nesting) -> Cell | str:
    """Say what comes of a pair."""
    if nesting.refused == frozenset(BACKENDS):
        return f"refused: “{nesting.sentence}”"
    if nesting.refused:
        where = ", ".join(sorted(nesting.refused))
        return f"right; refused on {where}: “{nesting.sentence}”"
    return f"right; {NOTES[nesting.note]}" if nesting.note else "right"


def stacks_table() -> str:
    """Return the stacks, from the outside in."""
    rows = [[" around ".join(stack.split())] for stack in STACKS]
    return str(table("Stacks that are resumed at every step", ["Stack"], rows))
