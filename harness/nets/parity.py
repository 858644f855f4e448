"""The numbers of a parity report: status, distance, first divergence of each case."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.nets.snapshots import Snapshot
from harness.processes import ROOT

__all__ = ["PUBLISHED", "outcomes", "take"]

PUBLISHED = ROOT / "results" / "parity" / "report.json"


def take(report: Path = PUBLISHED) -> Snapshot:
    """Return the outcomes in a report that ``harness parity --report`` wrote."""
    return outcomes(json.loads(report.read_text("utf-8")))


def outcomes(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return backend and execution mode -> case -> its outcome, given rows as JSON."""
    content: dict[str, dict[str, str]] = {}
    for row in rows:
        mode = row["mode"] if "mode" in row else row["face"]
        content.setdefault(f"{row['backend']} {mode}", {})[row["id"]] = _outcome(row)
    return content


def _outcome(row: Mapping[str, Any]) -> str:
    """Return status, distances and the first divergence, without names or reasons."""
    if row["max_ulp"] is None:
        return str(row["status"])
    text = f"{row['status']}, {row['max_ulp']} ULP, raw {row['max_ulp_raw']}"
    first = row["first_divergence"]
    if first is None:
        return text
    where = f"step {first['step']}, index {first['index']}"
    return f"{text}; {where}: got {first['got']}, expected {first['expected']}"
