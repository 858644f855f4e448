"""The rows of the page of data-parallel training, with the cases that show them.

What happens in each layout is in ``lockstep.messages.tests.tools``. The cases are in
``lockstep.pytorch.tests.parallel``, in a module of the same name.
"""

from __future__ import annotations

from typing import NamedTuple

from harness.discovery import modules_in
from lockstep.messages.tests.kit import Cells
from lockstep.messages.tests.tools import collected
from lockstep.pytorch.tests.base.parallel_cases import Case

__all__ = ["CASES", "PARALLEL", "ROWS", "Row"]

PARALLEL: dict[str, Cells] = collected("PARALLEL")

CASES: dict[str, dict[str, Case]] = {
    row: cases
    for module in modules_in("lockstep.pytorch.tests.parallel")
    for row, cases in module.CASES.items()
}


class Row(NamedTuple):
    """A row of the table: what happens in each layout, and cases that show it."""

    cells: Cells
    cases: dict[str, Case]


ROWS = {name: Row(cells, CASES.get(name, {})) for name, cells in PARALLEL.items()}
"""Rows of the table by name; DDP, FSDP2 and tensor parallelism are its columns."""
