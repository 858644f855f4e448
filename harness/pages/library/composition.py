"""Inserts of two lists: nested wrappers, and stacks that are resumed."""

from __future__ import annotations

from harness.composition.nesting import NESTINGS, NOTES, Nesting
from harness.composition.stacks import STACKS
from harness.pages.markup.tables import CARDS, Cell, table
from harness.pages.markup.templating import render
from lockstep.registry import BACKENDS

__all__ = ["composition_inserts"]

NAMES = {
    "multitask": "Multitask",
    "rows": "Row clipping",
    "dynamic": "Loss scaling",
    "masters-dynamic": "Masters",
    "agn": "AGN",
}
"""Layer -> name of its wrapper on the page."""

PARTS = {
    "rows": "row clipping",
    "fixed": "a fixed loss scale",
    "dynamic": "a dynamic loss scale",
    "patient": "a dynamic loss scale with hysteresis",
    "clipped": "a dynamic loss scale with a clip",
    "masters-dynamic": "masters with a dynamic scale",
    "masters-backoff": "masters with Backoff",
    "masters-logmax": "masters with LogMax and a clip",
}
"""Layer of a stack -> its description; other layers are shown by name."""


def composition_inserts() -> dict[str, str]:
    """Return the table of nestings, and the stacks that checkpoints are tested on."""
    return {"nesting": nesting_table(), "stacks": stacks_list()}


def nesting_table() -> str:
    """Return the table with a row per outer wrapper and a column per inner one."""
    rows = [
        [f"{NAMES[outer]} around", *(_cell(NESTINGS[outer, inner]) for inner in NAMES)]
        for outer in NAMES
    ]
    columns = ["Outer wrapper", *(f"… {lowered(name)}" for name in NAMES.values())]
    title = "The result of one wrapper around another"
    return str(table(title, columns, rows, style=CARDS))


def lowered(name: str) -> str:
    """Return a name as it is written in the middle of a sentence."""
    return name if name.isupper() else name.lower()


def _cell(nesting: Nesting) -> Cell | str:
    """Return the result of a pair: right, or refused with the error sentence."""
    if nesting.refused == frozenset(BACKENDS):
        return f"refused: “{nesting.sentence}”"
    if nesting.refused:
        where = ", ".join(sorted(nesting.refused))
        return f"right; refused on {where}: “{nesting.sentence}”"
    return f"right; {NOTES[nesting.note]}" if nesting.note else "right"


def stacks_list() -> str:
    """Return the stacks as a list in columns; the outermost wrapper comes first."""
    stacks = [" around ".join(_part_name(part) for part in s.split()) for s in STACKS]
    return render("stacks.html.jinja", stacks=stacks)


def _part_name(part: str) -> str:
    """Return the description of a layer, or its name if it has none."""
    return PARTS.get(part, part)
