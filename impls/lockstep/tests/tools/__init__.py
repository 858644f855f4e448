"""What the tests and pages of all backends need to know of a tool, one module each.

A module may have ``SIGNATURES``, the originals' arguments; ``WRAPPERS``, kinds of
wrappers that are tried with wrong arguments; ``MISTAKES``, which all backends refuse
with one sentence; and ``PARALLEL``, its rows on the page of data-parallel training.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["TOOLS", "collected"]

TOOLS = [
    importlib.import_module(f"{__name__}.{name}")
    for name in (
        "multitask",
        "scaling",
        "masters",
        "row_clipping",
        "optimizers",
        "clipping",
        "schedules",
        "options",
        "workers",
        "step",
    )
]
"""The modules in the order of pages."""


def collected(table: str) -> dict[str, Any]:
    """Return the entries of the tables of this name in all modules."""
    tables = [getattr(tool, table, {}) for tool in TOOLS]
    entries = {name: entry for own in tables for name, entry in own.items()}
    assert len(entries) == sum(map(len, tables)), f"a name twice in {table}"
    return entries
