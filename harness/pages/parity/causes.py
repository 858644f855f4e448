"""An insert of the tolerances' reasons, grouped by cause."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from harness.pages.markup.tables import CARDS, Cell, table
from harness.pages.markup.templating import number
from harness.pages.parity.matrices import tolerances
from lockstep.registry import BACKENDS


class Cause(NamedTuple):
    """A cause of differences of a few ULP.

    Attributes:
        sign: a regular expression that matches the reasons with this cause.
        text: an explanation in two sentences.
    """

    sign: str
    text: str


CAUSES: Mapping[str, Cause] = {
    "Order of operations": Cause(
        r"operations in another order, each|sum over duplicate rows, whose order",
        "Floating-point numbers are rounded after each operation, so a rule that is "
        "the same on paper gives another last digit. It adds up over the steps.",
    ),
    "Sums of squares": Cause(
        r"sum of squares|adds up the squares",
        "A norm adds up many squares. Kernels add them in lanes, and the number of "
        "lanes decides how the sum is rounded.",
    ),
    "Square roots": Cause(
        r"refines (the )?square roots",
        "TensorFlow 1.15 refines the processor's approximation of a square root. The "
        "frameworks of today round the root correctly.",
    ),
    "Powers, logarithms and cosines": Cause(
        r"rsqrt|\bpow\b|logarithm|\bcos\b",
        "No standard says how these functions are rounded, so that libraries and their "
        "versions differ. Here they are computed in float64 and rounded once.",
    ),
}
"""Name -> cause. A reason has the first cause whose sign matches."""


def cause_of(reason: str) -> str | None:
    """Return the name of the cause of a tolerance's reason; None without a match."""
    signs = ((name, cause.sign) for name, cause in CAUSES.items())
    return next((name for name, sign in signs if re.search(sign, reason)), None)


def causes_insert() -> str:
    """Return the table of causes, each with the tolerances that allow it."""
    entries: dict[str, list[dict[str, Any]]] = {name: [] for name in CAUSES}
    for entry in tolerances():
        if entry["ulp"] and (name := cause_of(entry["reason"])):
            entries[name].append(entry)
    rows = [_row(name, of) for name, of in entries.items() if of]
    columns = ["Cause", "What happens", "Backends", "Allowed, at most"]
    return table("Where the ULPs come from", columns, rows, style=CARDS)


def _row(name: str, entries: list[dict[str, Any]]) -> list[Cell | str]:
    named = {backend for entry in entries for backend in entry.get("backend", BACKENDS)}
    largest = float(max(entry["ulp"] for entry in entries))
    return [
        Cell(name, name, "wrap"),
        Cell(CAUSES[name].text, style="wrap"),
        ", ".join(backend for backend in BACKENDS if backend in named),
        Cell(f"{number(largest)} ULP", largest),
    ]
