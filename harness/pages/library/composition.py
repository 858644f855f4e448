"""Inserts: nested wrappers, stacks that are resumed, and data-parallel training."""

from __future__ import annotations

from harness.composition.layers import NOTES, Nesting
from harness.composition.wrappers import LAYERS, NESTINGS, STACKS, TITLES
from harness.pages.markup.tables import CARDS, Cell, table
from harness.pages.markup.templating import render
from lockstep.messages.tests.tools import collected
from lockstep.registry import BACKENDS

__all__ = ["composition_inserts"]


def composition_inserts() -> dict[str, str]:
    """Return the tables of nestings and of data-parallel training, and the stacks."""
    return {
        "nesting": nesting_table(),
        "data_parallel": parallel_table(),
        "stacks": stacks_list(),
    }


def parallel_table() -> str:
    """Return what each tool of PyTorch does in each layout, as a table in Markdown."""
    head = ("Tool", "DDP", "FSDP2", "tensor parallel")
    rows = [(name, *cells) for name, cells in collected("PARALLEL").items()]
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def nesting_table() -> str:
    """Return the table with a row per outer wrapper and a column per inner one."""
    rows = [
        [
            f"{TITLES[outer]} around",
            *(_cell(NESTINGS[outer, inner]) for inner in TITLES),
        ]
        for outer in TITLES
    ]
    columns = ["Outer wrapper", *(f"… {lowered(name)}" for name in TITLES.values())]
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
    return (LAYERS[part].text if part in LAYERS else "") or part
