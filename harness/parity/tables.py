"""The two tables that decide about a case: tolerances and capabilities."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.parity.cases import Case

__all__ = ["Tolerance", "excuse", "tolerance"]


@dataclass(frozen=True)
class Tolerance:
    """The largest distance that passes, and why it is not smaller."""

    ulp: float
    reason: str


EXACT = Tolerance(0, "nothing is rounded differently")


def tolerance(case: Case, backend: str, table: str = "tolerance") -> Tolerance:
    """Return the tolerance of a case on a backend: the first entry that matches.

    ``table`` is ``tolerance``, from the recording, or ``between_modes``.
    """
    facts = {
        "backend": backend,
        "family": case.family,
        "kind": case.kind,
        "optimizer": case.optimizer,
    }
    for entry in _table("tolerances.toml")[table]:
        named = all(facts[k] in entry[k] for k in facts if k in entry)
        if named and entry.get("sparse", case.sparse) == case.sparse:
            return Tolerance(entry["ulp"], entry["reason"])
    return EXACT


def excuse(case: Case, backend: str, face: str) -> str | None:
    """Return the reason why a host cannot express a case, or None if it can."""
    for entry in _table("capabilities.toml")["excuse"]:
        if (entry["family"], entry["kind"]) != (case.family, case.kind):
            continue
        if backend in entry["hosts"] or f"{backend}:{face}" in entry["hosts"]:
            return str(entry["reason"])
    return None


@cache
def _table(name: str) -> Mapping[str, Any]:
    return tomllib.loads((Path(__file__).parent / name).read_text("utf-8"))
